"""`rowlock bench`: the verb (`command`), and the bare SQL that it compares Rowlock with (`raw`)."""
