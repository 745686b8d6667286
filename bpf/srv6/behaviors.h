/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Generated from package srv6 by "go generate ./srv6". Do not edit.
 * The SRv6 behaviours and their flavors, with the numbers of srv6.Behavior and srv6.Flavor.
 */
#ifndef CULVERT_SRV6_BEHAVIORS_H
#define CULVERT_SRV6_BEHAVIORS_H

enum behavior {
	BEHAVIOR_NONE = 0,
	END = 1,
	END_X = 2,
	END_T = 3,
	END_DX2 = 4,
	END_DX4 = 5,
	END_DX6 = 6,
	END_DT4 = 7,
	END_DT6 = 8,
	END_DT46 = 9,
	END_B6_ENCAPS = 10,
	END_B6_ENCAPS_RED = 11,
	END_MAP = 12,
	END_LIMIT = 13,
	END_M_GTP6_D = 14,
	END_M_GTP6_D_DI = 15,
	END_M_GTP6_E = 16,
	END_M_GTP4_E = 17,
	H_ENCAPS = 18,
	H_ENCAPS_RED = 19,
	H_ENCAPS_L2 = 20,
	H_ENCAPS_L2_RED = 21,
	H_M_GTP4_D = 22,
};

enum flavor {
	FLAVOR_PSP = 1,
	FLAVOR_USP = 2,
	FLAVOR_USD = 4,
	FLAVOR_NEXT_C_SID = 8,
};

#endif
