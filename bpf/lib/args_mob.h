/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Args.Mob.Session (RFC 9433 section 6.1): QFI << 2 | R << 1 | U, TEID. */
#ifndef CULVERT_LIB_ARGS_MOB_H
#define CULVERT_LIB_ARGS_MOB_H

#include "bytes.h"

#define ARGS_MOB_BITS 40

INLINE __u64 args_mob(__u8 qfi, __u8 r, __u32 session)
{
	return (__u64)(qfi << 2 | r << 1) << 32 | session;
}

/* What a SID says `at` bits into it; 0 where it has no room. */
INLINE __u64 args_mob_read(const void *sid, __u32 at)
{
	return at + ARGS_MOB_BITS <= 128 ? bits128(ld128(sid), at & 127, ARGS_MOB_BITS) : 0;
}

/* Writes them into a SID. */
INLINE void args_mob_write(void *sid, __u64 args, __u32 at)
{
	struct u128 v = clear128(ld128(sid), at & 127, ARGS_MOB_BITS);

	st128(sid, place128(v, args, at & 127, ARGS_MOB_BITS));
}

INLINE __u8 args_mob_qfi(__u64 args)
{
	return args >> 34 & 0x3f;
}
INLINE __u8 args_mob_r(__u64 args)
{
	return args >> 33 & 1;
}
INLINE __u32 args_mob_session(__u64 args)
{
	return args;
}

#endif
