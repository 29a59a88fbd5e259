"""Usage, invoice lines and FOCUS data as files, and reports over the history lake."""
