"""Generated worlds: MuJoCo simulates rigid bodies and casts the rays, so the object of every pixel is known.

There are five levels modelled on MOVi-A to E (`levels.py`), from plain solids on a grey floor to many textured objects
under a moving camera. Nothing is downloaded, and OpenGL is not needed.
"""
