"""Signals that ask the work to stop."""

import signal

import pytest

from vonet.data.work import stop_signals


def test_the_first_signal_asks_and_the_handlers_come_back():
    before = signal.getsignal(signal.SIGINT)
    with stop_signals() as stop:
        assert not stop["asked"]
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # asks again, and nothing more
        assert stop["asked"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_stops_at_once():
    with stop_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop["asked"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
