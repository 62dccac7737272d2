"""What each page shows, as data: questions, sentences, numbers, charts. No Dash: the HTML file is made of the same."""
