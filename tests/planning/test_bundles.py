"""Cycles from the final bundles of a kernel."""

from __future__ import annotations

from t5x_like.planning.bundles import cycles

# A grid of 4 x 8 steps (34 rounds: the pipeline fills and drains), a region of two bundles that
# runs at index 0 alone, and a loop of 10 that takes steps of 2.
BUNDLES = """\
= control target key start
LB: loop body
= control target key end

     0   :  { %s1 = smov 0 }
   0x1 LB: > { %s9 = sphi %s1, %s8 } /* Start region 9 */
   0x2   : > { %p3 = scmp.ge.s32.totalorder %s21, 8  ;;  %p4 = scmp.ne.s32.totalorder %s12, 0 }
   0x3   : > { %20 = sbr.rel (%p4) target = $region5 }
   0x4   : > { %21 = vst [vmem:[#allocation2] sm:$0xff] %v1 } /* Start region 4 */
   0x5   :  {} /* End region 4 */
   0x6 PF: > { %s40 = smov 0 } /* Start/End empty region 5 */
   0x7 LB: >> { %s41 = sadd.s32 2, %s42  ;;  %s42 = sphi %s40, %s41 } /* Start region 7 */
   0x8   : >> { %p5 = scmp.ge.s32.totalorder %s41, 10 /* loop exit test */ }
   0x9   : >> { %22 = sbr.rel (!%p5) target = $region7 } /* End region 7 */
   0xa   : > { %s8 = sadd.s32 1, %s9 }
   0xb   : > { %p6 = scmp.ge.s32.totalorder %s8, 34 /* loop exit test */ }
   0xc   : > { %23 = sbr.rel (!%p6) target = $region9 }
   0xd   :  { %24 = vnop }
"""


def test_loops_and_rare_regions():
    grid, inner, outside = 34 * 7, 34 * 5 * 3, 2
    rare = 34 * 2 / 8
    assert cycles(BUNDLES) == grid + inner + outside + rare


def test_a_loop_of_unknown_length_has_no_cycles():
    assert cycles(BUNDLES.replace("%s8, 34", "%s8, %s77")) is None


def test_a_bundle_in_the_shadow_of_a_branch_belongs_to_the_loop_that_it_closes():
    outside, inside = "   0xd   :  {}\n", "   0xd   : > { %s50 = smov %s51 }\n"
    more = BUNDLES.replace("0xc   : >", "0xc   : ")
    assert cycles(more + outside + inside) == cycles(more + outside) + 34


def test_no_loop():
    assert cycles("     0   :  { %s1 = smov 0 }\n   0x1   :  {}\n") == 2
