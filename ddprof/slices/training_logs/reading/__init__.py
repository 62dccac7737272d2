"""Text logs of training jobs -> tables: lines made plain, then one file per framework that writes them."""
