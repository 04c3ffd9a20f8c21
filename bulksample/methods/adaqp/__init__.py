"""What `adaqp` decides and sends: widths of rows, their assignment to rows, links, rounded messages."""
