/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A Session Modification Request that updates FARs: first all of it is planned, then all
 * of it is done. What the plan cannot say is the daemon's. */
#ifndef CULVERT_N4_CHANGE_H
#define CULVERT_N4_CHANGE_H

#include "read.h"

#define PLACES (1u << 22) /* of SEIDs: internal/session/seid.go */

/* What a rule becomes. */
struct n4_step {
	__u32 pdr; /* 0: it stays */
	__u8 action;
	__u8 turns;  /* `act` is another one now */
	__u8 marker; /* an End Marker goes where packets went */
	__u8 update; /* 1: the first Update FAR changes it; 0: none does */
	__u8 first;  /* of the rules of its FAR: the End Marker is one for the FAR */
	__u8 pad[3];
	__u64 out, was_out;
	__u64 act;
};

/* By the number of the rule in the session's entry. */
struct n4_plan {
	struct n4_step step[N4_RULES];
	__u64 found; /* a rule of the FAR: here, since the verifier does not follow this memory */
};

INLINE __u64 *out_of(struct pdr *p)
{
	return (__u64 *)&p->teid;
}

INLINE __u64 *act_of(struct pdr *p)
{
	return (__u64 *)&p->more;
}

/* ---- the session ---- */

INLINE struct n4_session *session_of(__u64 seid)
{
	__u32 place = seid % PLACES;

	return bpf_map_lookup_elem(&n4_session, &place);
}

INLINE int lock_session(struct n4_session *s)
{
	return __sync_val_compare_and_swap(&s->lock, 0, N4_LOCKED_HERE) == 0;
}

INLINE void unlock_session(struct n4_session *s)
{
	__sync_lock_test_and_set(&s->lock, 0);
}

/* ---- the plan ---- */

/* Whether F-SEID and Update PDRs are those that change nothing. */
INLINE int repeats_session(struct n4_session *s, struct n4_message *m)
{
	return (!m->fseid || m->fseid == s->fseid) && (!m->pdrs || m->pdrs == s->pdrs);
}

/* Whether all that an Update FAR repeats is what the rule's FAR has. */
INLINE int repeats(struct n4_rule *f, struct n4_update *u)
{
	return (!(u->has & HAS_BAR) || u->bar == f->bar) &&
	       (!(u->has & HAS_DESTINATION) || u->destination == f->destination) &&
	       (!(u->has & HAS_INSTANCE) || u->instance == f->instance) &&
	       (!(u->has & HAS_TYPE) || (u->type & 0x3f) == f->type) && !(u->flags & ~SMREQ_SNDEM);
}

/* Where packets go by the Outer Header Creation; 0: not known here. */
INLINE __u64 out_by(struct n4_rule *f, struct n4_update *u)
{
	struct n4_forwarding_key key = { .template = f->template };
	__u32 *index;

	copy16_by4(&key.remote, &u->remote);
	index = f->template ? bpf_map_lookup_elem(&n4_forwarding, &key) : 0;
	return index ? (__u64)*index << 32 | u->teid : 0;
}

/* What an Update FAR does to rule number `n`: READ, or NOT_HERE. */
INLINE int plan_rule(struct n4_session *s, struct n4_update *u, struct n4_step *step, __u32 n)
{
	struct n4_rule *f;
	struct pdr *rule;
	__u64 act;
	int marks;

	f = &s->rule[n & (N4_RULES - 1)];
	if (!repeats(f, u))
		return NOT_HERE;
	step->pdr = f->pdr;
	rule = bpf_map_lookup_elem(&pdr, &step->pdr);
	if (!rule)
		return NOT_HERE;
	act = *(volatile __u64 *)act_of(rule);
	if (!act || (act != f->forward && act != f->buffer))
		return NOT_HERE; /* a gate, a quota, packets that are kept */
	step->action = u->has & HAS_ACTION ? u->action : f->action;
	step->act = step->action == f->forwards  ? f->forward
		    : step->action == f->buffers ? f->buffer
						 : 0;
	step->was_out = step->out = *(volatile __u64 *)out_of(rule);
	if (u->has & HAS_OUTER)
		step->out = out_by(f, u);
	step->turns = step->act != act;
	marks = u->flags & SMREQ_SNDEM && step->out != step->was_out;
	if (marks && (!(u->has & HAS_OUTER) || !f->leads))
		return NOT_HERE;
	step->marker = marks && step->first;
	/* what a rule that buffers would send is kept nowhere else, and only if it leads there */
	if (!step->act || !step->out ||
	    (step->act == f->buffer &&
	     (step->out != step->was_out || (u->has & HAS_OUTER && !f->leads))))
		return NOT_HERE;
	/* a rule that the daemon made buffer does not know where it forwards */
	if (step->act == f->forward && !f->leads && !(u->has & HAS_OUTER))
		return NOT_HERE;
	return READ;
}

/* Notes which rules an Update FAR changes: all of its FAR, and some. */
INLINE int find_rules(struct n4_session *s, struct n4_message *m, struct n4_plan *plan, __u32 i)
{
	__u32 n;

	plan->found = 0;
	for (n = 0; n < N4_RULES; n++) {
		if (!s->rule[n].pdr || s->rule[n].far != m->update[i].far)
			continue;
		if (plan->step[n].update)
			return NOT_HERE; /* the FAR comes twice */
		plan->step[n].update = i + 1;
		plan->step[n].first = !plan->found;
		plan->found = 1;
	}
	return plan->found;
}

/* A function of its own: the verifier goes through its loops once. */
GLOBAL int plan_all(struct n4_session *s, struct n4_message *m, struct n4_plan *plan)
{
	__u32 i, n;

	if (!s || !m || !plan)
		return NOT_HERE;
	for (i = 0; i < N4_FARS && i < m->updates; i++)
		if (!find_rules(s, m, plan, i))
			return NOT_HERE;
	for (n = 0; n < N4_RULES; n++) {
		i = plan->step[n].update;
		if (i && !plan_rule(s, &m->update[(i - 1) & (N4_FARS - 1)], &plan->step[n], n))
			return NOT_HERE;
	}
	return READ;
}

/* ---- End Markers ---- */

/* All that the request asks for, or none: READ, or NOT_HERE. */
INLINE int ask_for_markers(struct n4_session *s, struct n4_plan *plan)
{
	struct n4_event *event;
	__u32 n, asked = 0;

	for (n = 0; n < N4_RULES; n++)
		asked += plan->step[n].marker;
	if (!asked)
		return READ;
	if (asked > 1)
		return NOT_HERE; /* they would be reserved one by one */
	event = bpf_ringbuf_reserve(&n4_events, sizeof(*event), 0);
	if (!event)
		return NOT_HERE;
	event->seid = s->seid;
	event->out = event->far = event->pad = 0;
	for (n = 0; n < N4_RULES; n++) {
		if (!plan->step[n].marker)
			continue;
		event->far = s->rule[n].far;
		event->out = plan->step[n].was_out;
	}
	bpf_ringbuf_submit(event, 0);
	return READ;
}

/* ---- doing it ---- */

/* Whether a rule that buffered may forward: nothing that was handed up is overtaken. */
INLINE int open_held(__u32 index)
{
	struct refused *r = bpf_map_lookup_elem(&refused, &index);
	__u32 was = r ? __sync_val_compare_and_swap(&r->held, 0, HELD_OPEN) : 0;

	return !was || was & HELD_OPEN;
}

/* A rule that will buffer hands up what comes. */
INLINE void close_held(__u32 index)
{
	struct refused *r = bpf_map_lookup_elem(&refused, &index);

	if (r)
		__sync_fetch_and_and(&r->held, ~HELD_OPEN);
}

/* A rule that will forward goes on handing up what comes, as long as what it handed up is on
 * its way: the daemon, which learns of the change, opens it then. */
INLINE void turn(struct pdr *rule, struct n4_step *step, int buffers)
{
	if (buffers) {
		close_held(step->pdr);
	} else {
		__sync_lock_test_and_set(act_of(rule),
					 (step->act & ~(0xffull << 32)) | (__u64)PDR_BUFFER << 32);
		if (!open_held(step->pdr))
			return;
	}
	__sync_lock_test_and_set(act_of(rule), step->act);
}

/* A rule that forwards changes by one word; one that will forward gets where to first. */
INLINE void do_step(struct n4_rule *f, struct n4_step *step)
{
	struct pdr *rule = step->pdr ? bpf_map_lookup_elem(&pdr, &step->pdr) : 0;

	if (!rule)
		return;
	if (step->out != step->was_out)
		__sync_lock_test_and_set(out_of(rule), step->out);
	if (step->turns)
		turn(rule, step, step->act == f->buffer);
	f->action = step->action;
	f->leads |= step->act == f->forward;
}

INLINE __u16 n4_time(void)
{
	return bpf_ktime_get_coarse_ns() >> N4_TIME_SHIFT;
}

INLINE void note_change(struct n4_session *s, __u32 sequence, __u16 now)
{
	__u32 place = s->seid % PLACES, word = place / 64;
	__u64 *dirty = bpf_map_lookup_elem(&n4_dirty, &word);

	s->version++;
	s->when = now;
	s->answered[s->version & (N4_ANSWERS - 1)] = sequence | N4_ANSWERED;
	if (dirty)
		__sync_fetch_and_or(dirty, 1ull << (place & 63));
}

/* Whether a request was answered here before; NOT_HERE: the daemon did, or it is older
 * than those. */
#define ANSWERED 2

INLINE int look_back(struct n4_session *s, __u32 sequence, __u16 now)
{
	__u32 newest, i;

	if ((__u16)(now - s->when) > N4_FORGOTTEN)
		__builtin_memset(s->answered, 0, sizeof(s->answered));
	newest = s->answered[s->version & (N4_ANSWERS - 1)];
	for (i = 0; i < N4_ANSWERS; i++)
		if (s->answered[i] == (sequence | N4_ANSWERED))
			return ANSWERED;
	if (newest && ((sequence - newest - 1) & 0xffffff) > 0x7fffff)
		return NOT_HERE;
	return READ;
}

/* The whole request, while the session is locked: READ, ANSWERED or NOT_HERE. */
INLINE int change_session(struct n4_session *s, struct n4_message *m, struct n4_plan *plan,
			  __u32 association)
{
	__u16 now = n4_time();
	__u32 n;
	int found;

	if (s->seid != m->seid || s->association != association)
		return NOT_HERE;
	/* an earlier request waits for the daemon */
	if (s->open != N4_OPEN || *(volatile __u64 *)&s->left & N4_LEFT_TO)
		return NOT_HERE;
	found = look_back(s, m->sequence, now);
	if (found != READ)
		return found;
	if (!repeats_session(s, m) || !plan_all(s, m, plan) || !ask_for_markers(s, plan))
		return NOT_HERE;
	for (n = 0; n < N4_RULES; n++)
		do_step(&s->rule[n], &plan->step[n]);
	note_change(s, m->sequence, now);
	return READ;
}

#endif
