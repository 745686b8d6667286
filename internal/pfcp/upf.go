package pfcp

import (
	"errors"
	"iter"
	"net/netip"

	"github.com/culvert-net/culvert/internal/session"
)

// UPF is the user plane that the N4 server speaks for. Methods may be called at
// the same time for different sessions; the server calls them one after another
// for one session. No call may wait for the network or, for longer than a few
// milliseconds, for the disk: it holds up the answer to the SMF.
//
// Sessions that are handed over are never changed afterwards, by either side:
// the server makes a new one for each modification, which may share with the
// old one what is the same.
type UPF interface {
	// NewTEID hands out a TEID of ours (ErrNoResources: there is none left).
	NewTEID() (uint32, error)
	// TakeTEID takes the one that an SMF chose itself: ErrTaken where another
	// session has it, ErrNoResources where it cannot be had.
	TakeTEID(uint32) error
	// FreeTEID gives back what NewTEID or TakeTEID gave, once for each.
	FreeTEID(uint32)
	// GTPUAddresses are where G-PDUs for a rule of that source interface and
	// network instance arrive; not valid: none of that family.
	GTPUAddresses(source session.Interface, instance string) (v4, v6 netip.Addr)

	// NewUE takes UE addresses out of the pools of a network instance: an IPv4
	// /32, an IPv6 /64, or both, as asked for (ErrNoResources).
	NewUE(instance string, v4, v6 bool) ([]netip.Prefix, error)
	// TakeUE takes addresses and prefixes that an SMF chose, all or none:
	// ErrTaken where another session has one.
	TakeUE([]netip.Prefix) error
	// FreeUE gives them back, one by one or several.
	FreeUE([]netip.Prefix)

	// Establish installs a session, all or nothing. The TEIDs and UE addresses
	// in it have been taken.
	Establish(*session.Session) error
	// Modify replaces a session, all or nothing, and returns usage that was
	// asked for, and that of URRs which are gone or had to be reported because
	// of the change.
	Modify(from, to *session.Session, how Modification) ([]session.UsageReport, error)
	// Delete removes a session, as Session returned it, and calls done with its
	// last usage, once, from any goroutine: when the packets that were on their
	// way have left. TEIDs and UE addresses are given back by the server
	// afterwards.
	Delete(s *session.Session, done func([]session.UsageReport, error))
	// Drop removes a session whose usage nobody wants.
	Drop(seid uint64) error
	// Session is the session as it was last put, nil if there is none. The
	// server keeps no copy.
	Session(seid uint64) *session.Session
	// Sessions are all of them: at start, those that survived a restart, whose
	// TEIDs and UE addresses the UPF has taken again by itself.
	Sessions() iter.Seq[*session.Session]

	// SaveState keeps the state of the server over a restart (associations,
	// recovery time stamp, PFDs), opaque to the UPF. LoadState is what was
	// saved last, or nothing where it or any session was lost: then peers learn
	// by a new recovery time stamp that this is another UPF.
	SaveState([]byte) error
	LoadState() ([]byte, error)

	// Features are what the user plane can do, of what the standard leaves
	// open. It does not change while the server runs.
	Features() Features
}

// Values of both sides of N4: package session has them.
type (
	Modification = session.Modification
	Renewed      = session.Renewed
	Features     = session.Features
	RuleError    = session.RuleError
	RuleKind     = session.RuleKind
)

// The kinds of rules.
const (
	RulePDR = session.RulePDR
	RuleFAR = session.RuleFAR
	RuleQER = session.RuleQER
	RuleURR = session.RuleURR
	RuleBAR = session.RuleBAR
)

// Errors of a UPF that have a Cause of their own (TS 29.244 section 8.2.1).
// Anything else is a system failure (77).
var (
	ErrNoResources = errors.New("no resources available")           // 75
	ErrTaken       = errors.New("another session has it")           // 73
	ErrUnsupported = errors.New("not supported by this user plane") // 76
)

// Reporter is what the server does for the UPF.
type Reporter interface {
	// Report tells the session's SMF (Session Report Request), and again until
	// it answers. It does not wait: done, if not nil, is called once, with nil
	// when the SMF has taken the report, or why not: ErrBusy when too many
	// reports wait for an answer (nothing was sent), ErrNoAnswer, ErrRefused,
	// ErrNoSession. It may be called before Report returns.
	Report(r session.Report, done func(error))
	// PathFailure and PathRecovery tell all SMFs of a GTP-U peer (Node Report).
	PathFailure(peer netip.Addr)
	PathRecovery(peer netip.Addr)
}

// Errors of Report.
var (
	ErrBusy      = errors.New("too many reports are unanswered")
	ErrNoAnswer  = errors.New("the SMF does not answer")
	ErrRefused   = errors.New("the SMF refused the report")
	ErrNoSession = errors.New("no such session")
)
