"""Attribution maps: their similarity, their top values, their movement with the input, the features they select."""
