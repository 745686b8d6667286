package pfcp

import (
	"errors"
	"iter"
	"net/netip"

	"github.com/culvert-net/culvert/internal/session"
)

// UPF is the user plane that the N4 server controls. The server calls methods
// for one session one after another, and for different sessions concurrently. No
// method may wait for the network, nor for the disk for more than a few
// milliseconds: the SMF waits for the answer.
//
// Neither side changes a session after it was passed on: the server makes a new
// one for each modification, which may share unchanged parts with the old one.
type UPF interface {
	// NewTEID allocates a TEID (ErrNoResources: none is left).
	NewTEID() (uint32, error)
	// TakeTEID reserves a TEID that an SMF chose: ErrTaken if another session
	// has it, ErrNoResources if it cannot be used.
	TakeTEID(uint32) error
	// FreeTEID returns a TEID of NewTEID or TakeTEID, once for each.
	FreeTEID(uint32)
	// GTPUAddresses returns where G-PDUs for a rule of that source interface and
	// network instance arrive; not valid: none of that family.
	GTPUAddresses(source session.Interface, instance string) (v4, v6 netip.Addr)

	// NewUE allocates UE addresses from the pools of a network instance: an
	// IPv4 /32, an IPv6 /64, or both (ErrNoResources: none is left).
	NewUE(instance string, v4, v6 bool) ([]netip.Prefix, error)
	// TakeUE reserves addresses and prefixes that an SMF chose, all or none:
	// ErrTaken if another session has one.
	TakeUE([]netip.Prefix) error
	// FreeUE returns addresses of NewUE or TakeUE, one or several.
	FreeUE([]netip.Prefix)

	// Establish installs a session, all or nothing. Its TEIDs and UE
	// addresses are reserved.
	Establish(*session.Session) error
	// Modify replaces a session, all or nothing. It returns the usage that was
	// asked for, that of removed URRs, and that which the change makes due.
	Modify(from, to *session.Session, how session.Modification) ([]session.UsageReport, error)
	// Delete removes a session that Session returned. When its last packets have
	// left it calls done with the last usage, once, from any goroutine. The server
	// then frees TEIDs and UE addresses.
	Delete(s *session.Session, done func([]session.UsageReport, error))
	// Drop removes a session without reporting its usage.
	Drop(seid uint64) error
	// Session returns a session as the last Establish or Modify left it, or nil if
	// it does not exist. The server keeps no copy.
	Session(seid uint64) *session.Session
	// Sessions identifies all sessions: at the start, those that survived a restart.
	// The UPF has reserved their TEIDs and UE addresses again by itself.
	Sessions() iter.Seq[Identity]

	// SaveState saves a value of the server's state for a restart (an association
	// with its PFDs, the Recovery Time Stamp), opaque to the UPF, or forgets it if
	// it is empty. LoadState returns what was saved last, or nothing if that or any
	// session was lost: a new Recovery Time Stamp then shows peers that this is
	// another UPF.
	SaveState(key string, value []byte) error
	LoadState() (map[string][]byte, error)

	// Features returns the optional features of the user plane. They do not
	// change while the server runs.
	Features() session.Features
}

// Identity is what the server knows of each session, of which there may be a million: a
// start would take long if it looked at all that they say.
type Identity struct {
	SEID         uint64
	CPSEID       uint64 // with CPAddr: the CP F-SEID
	CPAddr       netip.Addr
	Node         string // Node ID of the SMF
	Applications bool   // a rule names an application
}

// Errors of a UPF that have a Cause of their own (TS 29.244 section 8.2.1).
// Anything else is a system failure (77).
var (
	ErrNoResources = errors.New("no resources available")           // 75
	ErrTaken       = errors.New("another session has it")           // 73
	ErrClosed      = errors.New("no UE may have it")                // 73
	ErrUnsupported = errors.New("not supported by this user plane") // 76
)

// Reporter sends the UPF's reports.
type Reporter interface {
	// Report sends a Session Report Request to the session's SMF, again until it
	// is answered. It does not block. done, if not nil, is called once, maybe
	// before Report returns: with nil when the SMF has accepted the report, else
	// with ErrBusy (nothing was sent), ErrNoAnswer, ErrRefused, ErrNoSession or ErrStopped.
	Report(r session.Report, done func(error))
	// PathFailure and PathRecovery report the path to a GTP-U peer to SMFs, given by
	// their Node IDs (Node Report Request). refused is called for each SMF that does not
	// take Node Reports, maybe before PathFailure returns. It must not block.
	PathFailure(peer netip.Addr, smfs []string, refused func(smf string))
	PathRecovery(peer netip.Addr, smfs []string)
	// IsSMF says whether a datagram from an address that came in by an interface, given
	// by its index, is from an SMF that we listen to.
	IsSMF(from netip.Addr, in int) bool
}

// Errors of Report.
var (
	ErrBusy      = errors.New("too many reports are unanswered")
	ErrNoAnswer  = errors.New("the SMF does not answer")
	ErrRefused   = errors.New("the SMF refused the report")
	ErrNoSession = errors.New("no such session")
	ErrStopped   = errors.New("the N4 server stops")
)
