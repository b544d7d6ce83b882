import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource, sys, torch
from vonet.blocks.unet import UNet, UNetConfig
from vonet.performance import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
unet = UNet(UNetConfig(), 16, (64, 64)).to(memory_format=torch.channels_last)
x = torch.rand(11, 16, 64, 64).to(memory_format=torch.channels_last)
with torch.no_grad():
    unet(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        unet(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_kept_memory_is_not_asked_for_again():
    def faults(mode):
        return int(subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, check=True).stdout)

    assert min(faults("keep") for _ in range(2)) < 0.75 * max(faults("plain") for _ in range(2))


HUGE_PAGES = """
import re
from pathlib import Path
from vonet.performance import keep_freed_memory

assert keep_freed_memory()
heap = re.search(r"\\[heap\\].*?VmFlags:([^\\n]*hg[^\\n]*)", Path("/proc/self/smaps").read_text(), re.DOTALL)
print(bool(heap))
"""


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a kernel with huge pages only")
def test_kept_memory_may_lie_in_huge_pages():
    assert subprocess.run([sys.executable, "-c", HUGE_PAGES], capture_output=True, check=True).stdout == b"True\n"
