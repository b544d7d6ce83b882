"""Generated worlds: MuJoCo moves rigid bodies, its ray caster sees them, and every pixel's object is known.

Five levels in the spirit of MOVi-A to E (`levels.py`), from plain solids on a grey floor to many textured ones under
a moving camera. Nothing is downloaded, no OpenGL is needed.
"""
