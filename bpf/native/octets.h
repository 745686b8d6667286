/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Octets out of a frame and into it, wherever it is: the same for the fuzzer and for
 * culvert-soft. */
#ifndef CULVERT_NATIVE_OCTETS_H
#define CULVERT_NATIVE_OCTETS_H

__u64 bpf_xdp_get_buff_len(struct xdp_md *ctx)
{
	return ctx->data_end - ctx->data;
}

long bpf_xdp_load_bytes(struct xdp_md *ctx, __u32 offset, void *to, __u32 length)
{
	if (offset > 0xffff || offset + length > ctx->data_end - ctx->data)
		return -EINVAL;
	memcpy(to, (void *)(long)(ctx->data + offset), length);
	return 0;
}

long bpf_xdp_store_bytes(struct xdp_md *ctx, __u32 offset, void *from, __u32 length)
{
	if (offset > 0xffff || offset + length > ctx->data_end - ctx->data)
		return -EINVAL;
	memcpy((void *)(long)(ctx->data + offset), from, length);
	return 0;
}

#endif
