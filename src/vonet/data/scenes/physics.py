"""Rigid bodies that fly, collide, roll and rest: MuJoCo at 240 steps per second, 12 pictures per second."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float, Int

from vonet.data.scenes.scene import MATERIALS, Scene
from vonet.data.scenes.shapes import SHAPES, Part

STEPS_PER_SECOND, FRAMES_PER_SECOND = 240, 12
STEPS_PER_FRAME = STEPS_PER_SECOND // FRAMES_PER_SECOND
SETTLING_STEPS = 2000
FLOOR_FRICTION, FLOOR_RESTITUTION = 0.3, 0.5

_GEOMS = {
    kind: getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")
    for kind in ("sphere", "box", "cylinder", "capsule", "ellipsoid", "mesh")
}


@dataclass(frozen=True)
class Collision:
    """Two bodies begin to touch: object numbers (−1 is the floor), frame, position, normal and force."""

    objects: tuple[int, int]
    frame: int
    position: list[float]
    normal: list[float]
    force: float


@dataclass(frozen=True)
class Motion:
    """The result of a simulation: the paths of the bodies, and MuJoCo's coordinates for each frame, from which it is
    rendered."""

    positions: Float[np.ndarray, "T k 3"]
    quaternions: Float[np.ndarray, "T k 4"]
    velocities: Float[np.ndarray, "T k 3"]
    angular_velocities: Float[np.ndarray, "T k 3"]
    masses: Float[np.ndarray, " k"]
    collisions: tuple[Collision, ...]


class World:
    """A scene as a MuJoCo model. `object_of` maps each geom to its object, −1 for the floor."""

    def __init__(self, scene: Scene):
        self.scene = scene
        self.model = _model(scene)
        self.data = mujoco.MjData(self.model)
        self.object_of: Int[np.ndarray, " geoms"] = self.model.geom_bodyid - 1

    def place(self, positions: Float[np.ndarray, "k 3"], quaternions: Float[np.ndarray, "k 4"]) -> None:
        """Move all bodies to the positions at which they are rendered."""
        coordinates = self.data.qpos.reshape(-1, 7)
        coordinates[:, :3], coordinates[:, 3:] = positions, quaternions
        mujoco.mj_kinematics(self.model, self.data)

    def simulate(self, frames: int) -> Motion | None:
        """Simulates all frames; returns None if the simulation diverges."""
        model, data = self.model, self.data
        thrown = np.array([o.thrown for o in self.scene.objects])
        self._begin()
        if not thrown.all():
            self._settle(thrown)
        coordinates, speeds = data.qpos.reshape(-1, 7), data.qvel.reshape(-1, 6)
        speeds[:] = 0
        speeds[:, :3] = [o.velocity for o in self.scene.objects]
        seen: list[tuple[np.ndarray, np.ndarray]] = []
        collisions: list[Collision] = []
        touched: dict[int, int] = {}
        for frame in range(frames):
            seen.append((coordinates.copy(), speeds.copy()))
            for step in range(frame * STEPS_PER_FRAME, (frame + 1) * STEPS_PER_FRAME):
                mujoco.mj_step(model, data)
                self._note_collisions(step, touched, collisions)
        path, speed = (np.stack(values) for values in zip(*seen, strict=True))
        if not np.isfinite(path).all() or data.warning.number.any():
            return None
        return Motion(
            positions=path[..., :3],
            quaternions=path[..., 3:],
            velocities=speed[..., :3],
            angular_velocities=np.einsum("tkij,tkj->tki", rotations(path[..., 3:]), speed[..., 3:]),
            masses=model.body_mass[1:].copy(),
            collisions=tuple(collisions),
        )

    def _begin(self) -> None:
        coordinates = self.data.qpos.reshape(-1, 7)
        for row, thing in zip(coordinates, self.scene.objects, strict=True):
            row[:3], row[3:] = thing.position, thing.quaternion

    def _settle(self, thrown: np.ndarray) -> None:
        """Lets the resting objects fall, with damped rolling, until they lie still; objects to be thrown are parked far
        above."""
        model, data = self.model, self.data
        coordinates, speeds = data.qpos.reshape(-1, 7), data.qvel.reshape(-1, 6)
        waiting = coordinates[thrown].copy()
        parked = waiting.copy()
        parked[:, :3] = [(100.0 * i, 0.0, 500.0) for i in range(len(parked))]
        for _ in range(0, SETTLING_STEPS, STEPS_PER_FRAME):
            coordinates[thrown], speeds[thrown] = parked, 0
            mujoco.mj_step(model, data, STEPS_PER_FRAME)
            speeds[:, [0, 1, 3, 4, 5]] *= 0.8
            if np.abs(speeds[~thrown]).max() < 0.15:
                break
        coordinates[thrown] = self._above(waiting, thrown)

    def _above(self, waiting: np.ndarray, thrown: np.ndarray) -> np.ndarray:
        """Start positions of the thrown objects: as drawn, but raised if a resting object is in the way."""
        sizes = np.array([o.size for o in self.scene.objects])
        resting = self.data.qpos.reshape(-1, 7)[~thrown, :3]
        for row, size in zip(waiting, sizes[thrown], strict=True):
            while (np.linalg.norm(resting - row[:3], axis=1) < 0.62 * (size + sizes[~thrown])).any():
                row[2] += 0.25
        return waiting

    def _note_collisions(self, step: int, touched: dict[int, int], collisions: list[Collision]) -> None:
        """Records a collision when a pair touches that has not touched for the time of a frame. `touched`: step at
        which each pair last touched."""
        data = self.data
        if not data.ncon:
            return
        pairs = np.sort(self.object_of[data.contact.geom], axis=1)
        codes = (pairs[:, 0] + 1) * len(self.object_of) + pairs[:, 1]
        for number, code in enumerate(codes.tolist()):
            if step - touched.get(code, -STEPS_PER_FRAME) >= STEPS_PER_FRAME:
                contact, force = data.contact[number], np.zeros(6)
                mujoco.mj_contactForce(self.model, data, number, force)
                collisions.append(
                    Collision(
                        objects=(int(pairs[number, 0]), int(pairs[number, 1])),
                        frame=step // STEPS_PER_FRAME,
                        position=np.round(contact.pos, 4).tolist(),
                        normal=np.round(contact.frame[:3], 4).tolist(),
                        force=round(float(force[0]), 4),
                    )
                )
            touched[code] = step


def rotations(quaternions: Float[np.ndarray, "*any 4"]) -> Float[np.ndarray, "*any 3 3"]:
    """Rotation matrices from an object's own coordinates to the world's."""
    w, x, y, z = np.moveaxis(quaternions / np.linalg.norm(quaternions, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _model(scene: Scene) -> mujoco.MjModel:
    spec = mujoco.MjSpec()
    spec.option.timestep = 1 / STEPS_PER_SECOND
    spec.option.gravity = [0, 0, -10]
    spec.option.iterations = 20
    floor = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
    _contact(floor, FLOOR_FRICTION, FLOOR_RESTITUTION, rolls=False)
    for number, thing in enumerate(scene.objects):
        body = spec.worldbody.add_body(name=f"object {number}")
        body.add_freejoint()
        for i, part in enumerate(SHAPES[thing.shape]):
            geom = _geom(spec, body, part, thing.size, f"{number} {i}")
            material = MATERIALS[thing.material]
            geom.density = material.density
            _contact(geom, material.friction, material.restitution, rolls=part.kind not in ("box", "mesh"))
    return spec.compile()


def _geom(spec: mujoco.MjSpec, body: mujoco.MjsBody, part: Part, size: float, name: str) -> mujoco.MjsGeom:
    geom = body.add_geom(type=_GEOMS[part.kind])
    if part.mesh is None:
        extents = [size * extent for extent in part.size]
        geom.size = [*extents, *[0.0] * (3 - len(extents))]
        geom.pos = [size * x for x in part.at]
        geom.alt.zaxis = list(part.axis)
    else:
        vertices, faces = part.mesh()
        mesh = spec.add_mesh(name=name, uservert=(size * vertices).ravel(), userface=faces.ravel().astype(np.int32))
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_CONVEX
        geom.meshname = name
    return geom


def _contact(geom: mujoco.MjsGeom, friction: float, restitution: float, rolls: bool) -> None:
    """Sets restitution through the damping ratio of an oscillator that keeps this share of its speed in half a period.
    Rolling objects need friction in six dimensions; three are enough for the others, at a third of the cost."""
    swing = -np.log(restitution)
    geom.condim = 6 if rolls else 3
    geom.friction = [friction, 0.01, 0.004]
    geom.solref = [0.02, float(swing / np.hypot(np.pi, swing))]
