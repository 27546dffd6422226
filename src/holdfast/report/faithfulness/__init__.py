"""The page's section on faithfulness, with the stability–faithfulness frontier."""
