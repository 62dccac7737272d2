"""Contents of each page as data (questions, sentences, numbers, charts), without Dash: the HTML file shows them too."""
