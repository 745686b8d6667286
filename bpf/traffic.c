// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The traffic of `culvert bench`: a generator that live frames run through, and
 * a receiver for what comes out of a device. No part of the data path: it is an
 * object of its own (docs/adr/0012-traffic.md). */
#include "traffic/send.h"
#include "traffic/receive.h"

char _license[] SEC("license") = "Dual BSD/GPL";
