"""Certificates: how often does the prediction survive when features are added to the explanation?"""
