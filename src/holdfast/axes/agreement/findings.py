def findings(judged):
    return []
