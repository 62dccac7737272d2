"""Contents of each page as data (questions, sentences, numbers, charts), without Dash; the HTML file uses them too."""
