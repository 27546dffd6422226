"""holdfast: does the explanation hold?"""
