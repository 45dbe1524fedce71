"""The walk over a program, on small programs written by hand in XLA's notation."""

from __future__ import annotations

import pytest

from t5x_like.core.devices.tpus import CHIPS
from t5x_like.planning import hlo
from t5x_like.planning.walk import walk as walk_program

CHIP = CHIPS["v5e"]


def walk(text, **topology):
    return walk_program(text, CHIP, **{"devices_of_slice": 4, **topology})


def cycles(n):
    return f'backend_config={{"window_config":{{"estimated_cycles":"{n}"}}}}'


ELEMENTWISE = """
%add_them (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %a = f32[8]{0} add(%p, %p)
}
"""
PRODUCT = """
%inner (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0)
  ROOT %c = f32[8,8]{1,0} convolution(%p, %p), dim_labels=bf_io->bf
}

%outer (q: f32[8,8]) -> f32[8,8] {
  %q = f32[8,8]{1,0} parameter(0)
  ROOT %f = f32[8,8]{1,0} fusion(%q), kind=kOutput, calls=%inner
}
"""


def test_an_instruction_may_take_several_lines():
    """XLA prints what a kernel says of itself on lines of its own."""
    work = walk(f"""HloModule m

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  %e = f32[8]{{0}} copy(%x), frontend_attributes={{kernel_metadata={{
"sizes":"{{}}"
}}}}, {cycles(10)}
  ROOT %f = f32[8]{{0}} copy(%e), {cycles(100)}
}}
""")
    assert sum(work.cycles.values()) == 110


def test_fusions_are_of_the_kind_of_what_is_nested_in_them():
    work = walk(f"""HloModule m
{ELEMENTWISE}{PRODUCT}
ENTRY %main (x: f32[8], y: f32[8,8]) -> f32[8,8] {{
  %x = f32[8]{{0}} parameter(0)
  %y = f32[8,8]{{1,0}} parameter(1)
  %e = f32[8]{{0}} fusion(%x), kind=kLoop, calls=%add_them, {cycles(10)}
  %k = f32[8]{{0:T(128)S(1)}} copy(%e), {cycles(3)}
  ROOT %r = f32[8,8]{{1,0}} fusion(%y), kind=kOutput, calls=%outer, {cycles(100)}
}}
""")
    assert work.cycles == {"other": 10, "copies": 3, "matrix products": 100}
    assert work.seconds(CHIP) == 113 / CHIP.clock


LOOP = """HloModule m

%condition (c: (s32[], f32[8])) -> pred[] {{
  %c = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant({bound})
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}}

%body (b: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %b = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %v = f32[8]{{0}} get-tuple-element(%b), index=1
  %w = f32[8]{{0}} negate(%v), {cycles}
  %r = f32[8]{{0}} all-reduce(%w), replica_groups={{{{0,1,2,3}}}}, to_apply=%add
  ROOT %t = (s32[], f32[8]) tuple(%i, %r)
}}

ENTRY %main (p: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %p = (s32[], f32[8]{{0}}) parameter(0)
  ROOT %l = (s32[], f32[8]{{0}}) while(%p), condition=%condition, body=%body{config}
}}
"""


@pytest.mark.parametrize(
    ("config", "bound"),
    [(', backend_config={"known_trip_count":{"n":"12"}}', 99), ("", 12)],
)
def test_a_loop_counts_as_often_as_it_runs(config, bound):
    work = walk(LOOP.format(bound=bound, cycles=cycles(7), config=config))
    assert work.cycles == {"other": 84}
    assert work.traffic["all-reduce"].count == 12
    assert work.unknown_loops == 0


def test_a_loop_without_a_bound_is_reported():
    text = LOOP.format(bound=3, cycles=cycles(7), config="").replace("constant(3)", "parameter(1)")
    work = walk(text)
    assert (work.cycles, work.unknown_loops) == ({"other": 7}, 1)


def test_the_dearest_branch_of_a_conditional_counts():
    work = walk(f"""HloModule m

%cheap (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %n = f32[8]{{0}} negate(%p), {cycles(5)}
}}

%dear (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %n = f32[8]{{0}} negate(%p), {cycles(50)}
}}

ENTRY %main (i: s32[], x: f32[8]) -> f32[8] {{
  %i = s32[] parameter(0)
  %x = f32[8]{{0}} parameter(1)
  %d = f32[8]{{0}} call(%x), to_apply=%cheap
  ROOT %c = f32[8]{{0}} conditional(%i, %d, %x), branch_computations={{%cheap, %dear}}
}}
""")
    assert work.cycles == {"other": 55}


ASYNC = """HloModule m

%start (p: bf16[4,8]) -> (bf16[4,8], bf16[16,8]) {
  %p = bf16[4,8]{1,0} parameter(0)
  %g = bf16[16,8]{1,0} all-gather(%p), replica_groups={{0,1,2,3}}, dimensions={0}, CONFIG
  ROOT %s = (bf16[4,8], bf16[16,8]) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}

%between (p: bf16[4,8]) -> bf16[16,8] {
  %p = bf16[4,8]{1,0} parameter(0)
  ROOT %g = bf16[16,8]{1,0} all-gather(%p), replica_groups={{0,1,2,3}}, dimensions={0}, CONFIG
}

ENTRY %main (x: bf16[4,8], y: f32[8]) -> f32[8] {
  %x = bf16[4,8]{1,0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %a = (bf16[4,8]{1,0}, bf16[16,8]{1,0}) fusion(%x), kind=kCustom, calls=%start
  %b = bf16[16,8]{1,0} fusion(%x), kind=kCustom, calls=%between, CYCLES
  %r = (f32[8]{0}, f32[8]{0}) all-reduce-start(%y), replica_groups={{0,1},{2,3}}, to_apply=%add
  ROOT %d = f32[8]{0} all-reduce-done(%r)
}
""".replace("CONFIG", 'backend_config={"async_collective_fusion_config":{}}').replace(
    "CYCLES", cycles(9)
)


def test_asynchronous_collectives_count_once():
    traffic = walk(ASYNC).traffic
    assert traffic["all-gather"].count == traffic["all-reduce"].count == 1
    assert traffic["all-gather"].bytes == 4 * 4 * 8 * 2
    assert traffic["all-gather"].ici_bytes == 3 * 4 * 8 * 2
    assert traffic["all-reduce"].bytes == 32  # of its operand: the result may name it twice
    assert traffic["all-reduce"].ici_bytes == 32
    assert not any(one.blocking_ici_bytes for one in traffic.values())


def test_the_device_waits_for_collectives_that_are_not_asynchronous():
    waiting = ASYNC.replace(
        "%d = f32[8]{0} all-reduce-done(%r)",
        "%d = f32[8]{0} all-reduce(%y), replica_groups={{0,1,2,3}}, to_apply=%add",
    )
    sent = walk(waiting).traffic["all-reduce"]
    assert (sent.ici_bytes, sent.blocking_ici_bytes) == (32 + 48, 48)


KERNEL = """HloModule m

ENTRY %main (x: bf16[16,128], y: f32[64,128], i: s32[4]) -> f32[4,128] {
  %x = bf16[16,128]{1,0} parameter(0)
  %y = f32[64,128]{1,0} parameter(1)
  %i = s32[4]{0} parameter(2)
  %k.1 = bf16[16,128]{1,0} custom-call(%x), custom_call_target="tpu_custom_call", CONFIG
  %k.2 = bf16[16,128]{1,0} custom-call(%k.1), custom_call_target="tpu_custom_call", CONFIG
  %n = f32[] custom-call(), custom_call_target="AllocateBuffer"
  %s = f32[64,128]{1,0:T(8,128)S(1)} negate(%y)
  ROOT %g = f32[4,128]{1,0} gather(%y, %i), offset_dims={1}
}
""".replace(
    "CONFIG",
    'backend_config={"custom_call_config":{"body":"x","cost_estimate":{"flops":"4000000000"}}}',
)


def test_kernels_are_listed_with_what_they_move_and_compute():
    ((kernel, calls),) = walk(KERNEL).kernels.items()
    assert (kernel.name, calls) == ("k", 2)
    assert kernel.bytes == 2 * 16 * 128 * 2
    assert kernel.seconds(CHIP, None) == 4e9 / CHIP.peak_flops
    assert kernel.seconds(CHIP, 2 * CHIP.clock) == 2
    assert kernel.seconds(CHIP, 1) == kernel.bytes / CHIP.hbm_bandwidth > 1 / CHIP.clock


def test_what_has_no_estimate_counts_by_its_bytes_in_hbm():
    negate = 64 * 128 * 4  # its result is in faster memory
    gather = 2 * (4 * 128 * 4 + 4 * 4)  # of its table only what it reads
    assert walk(KERNEL).uncosted_bytes == negate + gather


def test_text_that_is_no_program_is_refused():
    with pytest.raises(ValueError, match="no computation ENTRY"):
        hlo.Module("HloModule m")


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[2,3]{1,0}", 24),
        ("(bf16[4]{0:T(128)(2,1)}, pred[5]{0}, u32[])", 17),
        ("f8e4m3fn[8]{0}", 8),
        ("s4[8]{0}", 4),
        ("token[]", 0),
    ],
)
def test_the_size_of_a_shape(shape, size):
    assert hlo.size(shape) == size
