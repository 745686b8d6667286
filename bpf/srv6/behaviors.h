/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The SRv6 behaviours, in the order of srv6.Behavior. */
#ifndef CULVERT_SRV6_BEHAVIORS_H
#define CULVERT_SRV6_BEHAVIORS_H

enum behavior {
	BEHAVIOR_NONE,
	END,
	END_X,
	END_T,
	END_DX2,
	END_DX4,
	END_DX6,
	END_DT4,
	END_DT6,
	END_DT46,
	END_B6_ENCAPS,
	END_B6_ENCAPS_RED,
	END_MAP,
	END_LIMIT,
	END_M_GTP6_D,
	END_M_GTP6_D_DI,
	END_M_GTP6_E,
	END_M_GTP4_E,
	H_ENCAPS,
	H_ENCAPS_RED,
	H_ENCAPS_L2,
	H_ENCAPS_L2_RED,
	H_M_GTP4_D,
};

enum flavor {
	FLAVOR_PSP = 1,
	FLAVOR_USP = 2,
	FLAVOR_USD = 4,
	FLAVOR_NEXT_CSID = 8,
};

#endif
