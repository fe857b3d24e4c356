from app.plotting import Figure
def views(frame, params): return []
def on_event(v,e,p): return None
