"""The report in a browser: it loads, plays, hides slots, obeys the keyboard, and fits a phone and the dark."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.browser import browser, program
from tests.figures.made_up import GREYS, LOG, NAME, contents, watched
from vonet.figures.page import slot_colours, write_page

needs_browser = pytest.mark.skipif(
    program() is None, reason="no Chromium on this machine: apt-get install chromium (as .ci/run does) to test pages"
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(path, contents())
    return path


@pytest.fixture
def page(chromium, file):
    return chromium.open(file)


def colour(page, panel, row, column):
    """Of the middle of a pixel of the video, as the panel shows it now."""
    found = page.evaluate(
        f"(c => [...c.getContext('2d').getImageData(({column} + 0.5) * c.width / viewer.video.width, "
        f"({row} + 0.5) * c.height / viewer.video.height, 1, 1).data])(viewer.canvases['{panel}'])"
    )
    assert found[3] == 255
    return found[:3]


def close(found, expected, by=2):
    return np.abs(np.array(found) - np.array(expected)).max() <= by


def opaque(page):
    page.evaluate("byId('opacity').value = 100; viewer.draw()")


@needs_browser
def test_it_loads_without_complaint_and_fetches_nothing(page, file):
    assert page.complaints == []
    fetched = [url for url in page.asked_for if not url.startswith("data:")]
    assert fetched == [file.resolve().as_uri()]
    captions = page.evaluate("[...document.querySelectorAll('.panel figcaption')].map(c => c.textContent)")
    assert captions == ["input", "true ids", "prediction", "reconstruction", "prior reconstruction"]
    assert page.evaluate("[...document.querySelectorAll('section')].filter(s => s.hidden).length") == 0
    said = page.evaluate("document.body.innerText")
    for words in ("75.0 ± 1.0", "VONet, paper", "It beats every trivial method.", "a <i>run</i> that never was"):
        assert words in said


@needs_browser
def test_names_are_text_whatever_they_hold(page):
    assert page.evaluate("document.querySelector('.choice').title") == NAME
    assert page.evaluate("document.querySelectorAll('b:not(.headline b, #event b)').length") == 0


@needs_browser
def test_the_slider_changes_every_picture(page):
    for panel, divisor in (("input", 1), ("reconstruction", 2), ("prior_reconstruction", 5)):
        assert close(colour(page, panel, 7, 0), [GREYS[0] // divisor] * 3)
    page.click("byId('frame')")  # in the middle of four frames: the second or third
    frame = page.evaluate("viewer.frame")
    assert frame in (1, 2)
    assert page.evaluate("byId('clock').textContent") == f"{frame + 1} / 4"
    for panel, divisor in (("input", 1), ("reconstruction", 2), ("prior_reconstruction", 5)):
        assert close(colour(page, panel, 7, 0), [GREYS[frame] // divisor] * 3)


@needs_browser
def test_overlays_have_the_colours_of_ids_as_strong_as_asked(page):
    palette, grey = slot_colours(watched()).astype(int), np.array([GREYS[0]] * 3)
    opaque(page)
    assert close(colour(page, "prediction", 2, 2), palette[0])
    assert close(colour(page, "prediction", 2, 9), palette[2])
    assert close(colour(page, "prediction", 7, 2), grey)  # of these no slot is sure
    assert close(colour(page, "true", 7, 2), grey)  # the background
    assert close(colour(page, "true", 2, 9), palette[2])  # object 9 has the colour of slot 3, which suits it best
    page.evaluate("byId('opacity').value = 40; viewer.draw()")
    assert close(colour(page, "prediction", 2, 9), 0.4 * palette[2] + 0.6 * grey, by=4)
    page.evaluate("byId('opacity').value = 0; viewer.draw()")
    assert close(colour(page, "prediction", 2, 9), grey)


@needs_browser
def test_boundaries_are_white_lines_where_ids_meet(page):
    opaque(page)
    edge = (2, 6.5)  # between slot 1 and slot 3
    assert close(colour(page, "prediction", *edge), [255] * 3)
    page.click("byId('boundaries')")
    assert not close(colour(page, "prediction", *edge), [255] * 3, by=20)


@needs_browser
def test_a_slot_toggles(page):
    opaque(page)
    before = colour(page, "prediction", 2, 9)
    page.click("document.querySelectorAll('.slot')[2]")
    assert close(colour(page, "prediction", 2, 9), [GREYS[0]] * 3)  # slot 3 shows the frame
    assert close(colour(page, "prediction", 2, 2), slot_colours(watched())[0])  # the others stay
    assert page.evaluate("[...document.querySelectorAll('.slot')].map(s => s.ariaPressed)") == ["true", "true", "false"]
    shown = "[...document.querySelectorAll('#strip .curve')].map(c => c.getAttribute('visibility'))"
    assert page.evaluate(shown) == ["visible", "visible", "hidden"]  # and its curve goes with it
    page.click("document.querySelectorAll('.slot')[2]")
    assert colour(page, "prediction", 2, 9) == before
    assert close(
        colour(page, "prediction", 2, 2), 0.25 * slot_colours(watched())[0] + 0.75 * GREYS[0]
    )  # the mouse is on slot 3


@needs_browser
def test_the_keyboard_does_everything(page):
    frame = "viewer.frame"
    for key, expected in (
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowLeft", 1),
        ("End", 3),
        ("ArrowRight", 3),
        ("Home", 0),
    ):
        page.press(key)
        assert page.evaluate(frame) == expected
    for key, expected in (("n", 1), ("n", 2), ("n", 2), ("p", 1)):  # shared from frame 1 on, a switch at frame 2
        page.press(key)
        assert page.evaluate(frame) == expected
    page.press("2")
    assert page.evaluate("[...viewer.hidden]") == [1]
    page.press("9")  # there is no such slot
    page.press("0")
    assert page.evaluate("[...viewer.hidden]") == []
    page.press("+")
    assert page.evaluate("byId('opacity').value") == "65"
    page.press("b")
    assert page.evaluate("byId('boundaries').checked") is False
    page.press(" ")
    page.wait_for(f"{frame} !== 1")  # it plays
    page.press(" ")
    still = page.evaluate(f"new Promise(done => {{ const at = {frame}; setTimeout(() => done({frame} === at), 300) }})")
    assert still
    page.press("ArrowDown")
    page.wait_for("viewer.ready && viewer.number === 1")
    assert page.complaints == []


@needs_browser
def test_after_the_mouse_the_keys_are_the_videos_again(page):
    for pressed in ("document.querySelectorAll('.choice')[1]", "document.querySelector('.slot')", "byId('boundaries')"):
        page.click(pressed)
        page.wait_for("viewer.ready && viewer.number === 1")
        page.press(" ")
        assert page.evaluate("viewer.timer !== null")
        page.press(" ")
        assert page.evaluate("viewer.timer === null")
    page.press("?")
    assert page.evaluate("byId('keys').hidden") is False


@needs_browser
def test_a_focused_slider_moves_once_for_each_key(page):
    page.evaluate("byId('frame').focus()")
    page.press("ArrowRight")
    assert page.evaluate("[viewer.frame, byId('frame').valueAsNumber]") == [1, 1]


@needs_browser
def test_the_timeline_is_synchronised_and_marks_what_happens(page):
    assert page.evaluate("document.querySelectorAll('#strip .curve').length") == 3
    assert page.evaluate("[...document.querySelectorAll('#strip .switch title')].map(t => t.textContent)") == [
        "identity switch, frame 3"
    ]
    assert page.evaluate("[...document.querySelectorAll('#strip .fragmented title')].map(t => t.textContent)") == [
        "shared by several slots, frames 2 to 3"
    ]
    places = []
    for frame in range(4):
        page.evaluate(f"viewer.seek({frame})")
        places.append(page.evaluate("+document.querySelector('#strip .playhead').getAttribute('x1')"))
    assert np.allclose(np.diff(places), np.diff(places)[0])
    assert places[1] > places[0]
    page.evaluate("viewer.seek(2)")
    said = page.evaluate("byId('event').textContent")
    assert said == "here: object 4 goes to slot 2; object 9 is shared by 2.0 slots"
    page.click("document.querySelector('#strip')")
    assert page.evaluate("viewer.frame") in (1, 2)


@needs_browser
def test_a_page_that_is_not_laid_out_yet_is_drawn_when_it_is(page):
    page.evaluate(
        "document.body.style.display = 'none'; byId('strip').replaceChildren(); viewer.timeline.show(viewer.video)"
    )
    page.evaluate("viewer.seek(1)")
    assert page.evaluate("byId('strip').childElementCount") == 0
    page.evaluate("document.body.style.display = ''")
    page.wait_for("document.querySelectorAll('#strip .curve').length === 3")
    assert page.complaints == []


@needs_browser
@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_need_not_scroll_sideways(chromium, file, width):
    page = chromium.open(file, width=width, height=800)
    page.evaluate("document.querySelector('details').open = true; byId('help').click()")
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.querySelectorAll('.panel')].every(p => p.clientWidth > 100)")
    assert page.complaints == []


LUMINANCE = """
(c => { const linear = v => v <= 0.04 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        const [r, g, b] = c.match(/[\\d.]+/g).map(v => linear(v / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; })(getComputedStyle(%s).%s)
"""


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_by_day_and_night(chromium, file, dark):
    page = chromium.open(file, dark=dark)

    def luminance(element, what):
        return page.evaluate(LUMINANCE % (element, what))

    for _ in range(2):  # as the system has it, then as the button turns it
        ground = luminance("document.body", "backgroundColor")
        assert (ground < 0.05) if dark else (ground > 0.85)
        for text in ("document.body", "byId('summary')", "document.querySelector('#facts dt')"):
            ink = luminance(text, "color")
            assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) > 4.5  # what WCAG asks of small text
        page.click("byId('theme')")
        dark = not dark


@needs_browser
def test_what_a_model_cannot_show_has_no_panel(chromium, tmp_path):
    plain = watched(true_ids=None, reconstruction=None, prior_reconstruction=None, divergence=None)
    write_page(tmp_path / "plain.html", contents(methods=[], log=[], videos=[plain], verdict=""))
    page = chromium.open(tmp_path / "plain.html")
    assert page.evaluate("Object.keys(viewer.canvases)") == ["input", "prediction"]
    assert page.evaluate("[...document.querySelectorAll('section')].filter(s => s.hidden).map(s => s.id)") == [
        "scores",
        "learning",
    ]
    page.press("End")
    assert close(colour(page, "input", 0, 0), [GREYS[3]] * 3)
    assert page.complaints == []


@needs_browser
def test_one_score_is_a_point_and_names_tell_videos_apart(chromium, tmp_path):
    videos = [watched(name=f"A-validation-00{number}") for number in (17, 18)]
    write_page(tmp_path / "once.html", contents(videos=videos, log=LOG[:-1]))
    page = chromium.open(tmp_path / "once.html")
    assert page.evaluate("[...document.querySelectorAll('.choice span:not(.soft)')].map(s => s.textContent)") == [
        "0017",
        "0018",
    ]
    page.wait_for("document.querySelectorAll('#curves circle').length === 2")  # FG-ARI and mIoU, scored once
    lines = page.evaluate("document.querySelectorAll('#curves .card:first-child .curve').length")
    assert lines == 2  # of the trivial methods


@needs_browser
def test_a_single_frame_is_a_video_too(chromium, tmp_path):
    whole = watched()
    parts = ("frames", "true_ids", "ids", "reconstruction", "prior_reconstruction", "divergence")
    one = watched(**{part: getattr(whole, part)[:1] for part in parts})
    write_page(tmp_path / "one.html", contents(videos=[one], log=LOG[:1]))
    page = chromium.open(tmp_path / "one.html", width=390)
    for key in ("ArrowRight", "End", "n"):
        page.press(key)
    assert page.evaluate("[viewer.frame, byId('clock').textContent]") == [0, "1 / 1"]
    assert close(colour(page, "input", 0, 0), [GREYS[0]] * 3)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.complaints == []


def test_the_file_holds_all_it_needs(file):
    text = file.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert re.findall(r"/\*[A-Z]+\*/", text) == ["/*SCRIPT*/"]  # in a video's name; no other place is left to fill
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
    assert [video["name"] for video in data["videos"]] == [NAME, "clip two"]
    assert data["videos"][0]["objects"][0]["holders"] == [1, 1, 2, 2]


def test_curves_are_thinned_by_means(tmp_path):
    log = [{"update": u, "seconds": 0.0, "losses": {"kl": float(u)}} for u in range(1000)]
    log.append({"update": 1000, "seconds": 0.0, "losses": {"kl": float("nan")}})
    write_page(tmp_path / "page.html", replace(contents(), log=log))
    text = (tmp_path / "page.html").read_text()
    points = json.loads(re.search(r'"losses":\{"kl":(\[\[.*?\]\])', text).group(1))
    assert len(points) == 250
    assert points[0] == [2, 1.5]
