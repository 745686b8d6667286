/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a packet's journey ended. Append only: the numbers are in counters,
 * logs and metrics. The names are read from BTF; what each means to an
 * operator stands in internal/dataplane/reason/reason.go. */
#ifndef CULVERT_DEF_REASON_H
#define CULVERT_DEF_REASON_H

enum reason {
	REASON_FORWARDED,
	REASON_PASSED,    /* to the kernel */
	REASON_SLOW_PATH, /* taken over by the daemon */
	REASON_REPLIED,   /* answered in place: GTP-U Echo */

	/* SRv6 */
	REASON_SR_DOMAIN_EDGE,   /* RFC 8754 5.1: from outside, to or from inside */
	REASON_HOP_LIMIT,        /* hop limit or TTL would become 0 */
	REASON_SRH_MALFORMED,    /* cut short, or Last Entry and length disagree */
	REASON_SEGMENTS_LEFT,    /* out of range, or not what the behaviour wants */
	REASON_UPPER_LAYER,      /* not what the behaviour takes (RFC 8986 4.1.1) */
	REASON_ROUTING_TYPE,     /* a routing header that is not an SRH */
	REASON_EXTENSION_CHAIN,  /* IPv6 extension headers cut short or too many */
	REASON_IPV6_MALFORMED,
	REASON_IPV4_MALFORMED,
	REASON_INNER_MALFORMED,  /* the inner packet's length or version */
	REASON_ECN,              /* RFC 6040: CE outside, Not-ECT inside */
	REASON_NO_SEGMENT_LIST,  /* the policy has none */
	REASON_LIMITED,          /* End.Limit */

	/* GTP-U */
	REASON_UDP_MALFORMED,
	REASON_GTPU_VERSION,     /* not version 1, or GTP' */
	REASON_GTPU_LENGTH,
	REASON_GTPU_EXTENSION,   /* length 0, past the end, or must be understood */
	REASON_GTPU_MESSAGE,     /* a message that is not for here */
	REASON_TEID_UNKNOWN,
	REASON_ECHO_FROM_SELF,
	REASON_PDU_TYPE,         /* the T-PDU is not of the configured PDU type */

	/* Sending */
	REASON_NO_ROUTE,
	REASON_UNREACHABLE,      /* blackhole, unreachable, prohibit */
	REASON_TOO_BIG,          /* for the egress MTU: Packet Too Big was sent */
	REASON_HEADROOM,         /* the driver left too little room */
	REASON_SLOW_PATH_FULL,
	REASON_FRAGMENT,         /* a fragment where none can be handled */
	REASON_NO_NEIGHBOUR,     /* not in main, so the kernel cannot help: see semantics.md */

	/* Sessions */
	REASON_NO_PDR,         /* for a UE or a TEID of ours, but no rule takes it */
	REASON_FAR_DROP,       /* the FAR says so, or not yet where to */
	REASON_GATE_CLOSED,    /* a QER's gate */
	REASON_UE_SOURCE,      /* not an address of this UE */
	REASON_UE_TO_UE,       /* and no rule allows it */
	REASON_UE_TO_CORE,     /* this node, SIDs, GTP-U peers, SMFs, protected prefixes */
	REASON_RATE,           /* above a QER's MBR or packet rate */
	REASON_SLICE_RATE,     /* above the slice's rate limit */
	REASON_QUOTA,          /* of a URR, used up */

	REASON_SLOW_PATH_SIZE, /* larger than what is handed up whole */

	/* Roles of ports */
	REASON_ROLE, /* nothing that the port's roles accept */
	REASON_PEER, /* GTP-U from somebody who is not among the port's peers */
	REASON_HOST, /* for this host, and the port's `host` does not list it */

	REASON_MARTIAN, /* from or to an address that no packet on its way has */

	REASON_QUEUE_FULL, /* of the CPU that the packet belongs to */

	REASON_NO_CLASS_POLICY, /* its traffic class is strict, and has no policy to here */

	REASON_TENANT, /* of a tenant's pod, or for one, and the tenant has nothing there */

	REASON_OTHER_SLICE, /* at a slice's SID or from a UE, for a session of another slice */
	REASON_NO_FORWARDING, /* only the kernel could send it on, and does not forward */

	/* NAT44 */
	REASON_NAT_PORTS,      /* all ports that the UE's flow may have are in use */
	REASON_NAT_PROTOCOL,   /* neither TCP, UDP nor ICMP that can be translated */
	REASON_NAT_NO_MAPPING, /* for a public port that no UE uses */
	REASON_NAT_BEHIND,     /* from outside to the private address of a UE */

	REASON_BUFFER_FULL, /* for an idle UE; the daemon has no room for more */

	/* Pods */
	REASON_POD_SOURCE, /* from an address that is not the pod's */
	REASON_POD_FRAME,  /* a tag, or what only routers send */

	REASON_NO_VPN_ROUTE, /* from a UE whose slice has a VPN, which has no route to there */

	/* NetworkPolicies */
	REASON_POLICY_INGRESS, /* to a pod whose policies do not allow it */
	REASON_POLICY_EGRESS,  /* from one */

	REASON_TURNS, /* for this node again, after so many SIDs and tunnels of its own */

	REASON_TAGS, /* more VLAN tags than roles look behind */

	REASON_COUNT,
};

#endif
