"""Who imports whom inside `media`, and which doors the rest of the project goes through."""

from tests.test_architecture import all_arrows, modules, within

ROOMS = ("media.picture", "media.clip", "media.fetch", "media.process")
# On top of the rooms; all other modules of the folder are the ground floor.
TOP = {"media.store", "media.preview"}
MAY_ENTER = {"media.process": {"media.picture", "media.clip"}}


def room_of(name: str) -> str | None:
    return next((room for room in ROOMS if within(name, room)), None)


def test_rooms_import_only_the_ground_floor_and_each_other_as_listed() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, imported in all_arrows()
        if within(name, "media") and name not in TOP
        if imported in TOP or room_of(imported) not in allowed(name)
    ]
    assert not wrong


def allowed(name: str) -> set[str | None]:
    room = room_of(name)
    return {None, room} | MAY_ENTER.get(room or "", set())


def test_nobody_goes_past_the_door_of_a_room() -> None:
    """Doors are what the rooms' packages export; tests may look inside."""
    inside = {name for name in modules() if room_of(name) and name not in ROOMS}
    wrong = [
        f"{name} imports {imported}"
        for name, imported in all_arrows()
        if imported in inside and room_of(imported) != room_of(name)
    ]
    assert not wrong
