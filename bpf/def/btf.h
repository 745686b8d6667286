/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names types that Go is to know, so that they are in BTF even where no map
 * and no function that is left after inlining names them. The loader ignores
 * the section. */
#ifndef CULVERT_DEF_BTF_H
#define CULVERT_DEF_BTF_H

#include "class.h"
#include "n4.h"
#include "spread.h"
#include "tables.h"
#include "reason.h"
#include "../lib/btf.h"
#include "../srv6/behaviors.h"

BTF_TYPE(enum, apart);
BTF_TYPE(enum, at_sid);
BTF_TYPE(enum, behavior);
BTF_TYPE(enum, class_table);
BTF_TYPE(enum, container);
BTF_TYPE(enum, filter_flags);
BTF_TYPE(enum, flavor);
BTF_TYPE(enum, flow_answer_at);
BTF_TYPE(enum, flow_kind);
BTF_TYPE(enum, flow_limits);
BTF_TYPE(enum, flow_where);
BTF_TYPE(enum, forwarding_kind);
BTF_TYPE(enum, frame_filter_flags);
BTF_TYPE(enum, meter_unit);
BTF_TYPE(enum, nat_limits);
BTF_TYPE(enum, nat_protocol);
BTF_TYPE(enum, direction);
BTF_TYPE(enum, netpol_count);
BTF_TYPE(struct, pod_flow);
BTF_TYPE(enum, netpol_limits);
BTF_TYPE(enum, next_hop_flags);
BTF_TYPE(enum, pdr_action);
BTF_TYPE(enum, pdr_flags);
BTF_TYPE(enum, pdu_type);
BTF_TYPE(enum, port_flags);
BTF_TYPE(enum, quota_limits);
BTF_TYPE(enum, punt_kind);
BTF_TYPE(enum, reach);
BTF_TYPE(enum, reason);
BTF_TYPE(enum, session_event_kind);
BTF_TYPE(enum, sid_flags);
BTF_TYPE(enum, n4_fate);
BTF_TYPE(enum, n4_limits);
BTF_TYPE(enum, program);
BTF_TYPE(enum, spread_by);
BTF_TYPE(enum, spread_limits);
BTF_TYPE(enum, spread_place);
BTF_TYPE(enum, straight);
BTF_TYPE(enum, target_kind);
BTF_TYPE(enum, tunnel_action);
BTF_TYPE(enum, trie_leaf);
BTF_TYPE(enum, trie_table);
BTF_TYPE(enum, ue_buckets);
BTF_TYPE(enum, ue_to_ue);
BTF_TYPE(enum, vouches);
BTF_TYPE(enum, mss_clamp);
BTF_TYPE(struct, flow_record);
BTF_TYPE(struct, given);
BTF_TYPE(struct, n4_event);
BTF_TYPE(struct, punt);
BTF_TYPE(struct, session_event);
BTF_TYPE(struct, trace_event);

#endif
