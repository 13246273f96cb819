"""The paper's theory measured: each module gives a table of predictions beside measurements."""
