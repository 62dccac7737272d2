"""What each page shows, as data: questions, sentences, numbers, charts, without Dash: the HTML file is made of the same."""
