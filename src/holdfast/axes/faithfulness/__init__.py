"""Faithfulness: does removing what the map calls important hurt the prediction?"""
