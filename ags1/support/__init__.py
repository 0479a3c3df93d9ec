"""What knows no format: locks over forks, signals, parallel maps, lazy names, words, options."""
