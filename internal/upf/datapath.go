package upf

import (
	"context"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
)

// DataPath is what the UPF needs of *dataplane.DataPlane.
type DataPath interface {
	// NewTEID hands out a TEID, TakeTEID takes a given one (target.ErrTaken),
	// FreeTEID gives one back.
	NewTEID() (uint32, error)
	TakeTEID(uint32) error
	FreeTEID(uint32)

	// PutSession puts or replaces a session, all or nothing. The counts of rules
	// that stay go on.
	PutSession(datapath.Session) error
	// RemoveSession removes a session. Unless it returns an error it calls done,
	// once the last packet has left, with what was forwarded up to that.
	RemoveSession(id uint64, done func([]datapath.RuleUsage, error)) error
	// DropSession removes a session whose usage nobody wants.
	DropSession(id uint64) error
	// SessionUsage returns the counts of a session's rules, with those of rules
	// that the last PutSession removed.
	SessionUsage(id uint64) ([]datapath.RuleUsage, error)
	SetRuleLimits(id uint64, rule uint16, l datapath.RuleLimits) error
	SetQuotas(id uint64, list []datapath.Quota) error
	// Stations lists the hosts behind Ethernet sessions.
	Stations() ([]dataplane.Station, error)
	// SessionEvents calls the function for each event until the context ends.
	SessionEvents(context.Context, func(datapath.Event)) error

	// Turn says what the data path needs to turn a rule by itself; Out and LeadsTo
	// where an entry of pdr leads G-PDUs.
	Turn(id uint64, forward, buffer *datapath.Rule) (t datapath.Turn, ok bool)
	// RecoverTurn goes on with what an earlier daemon told the data path, before any
	// session is put; OwnerOf says whose an entry of pdr is.
	RecoverTurn(template uint16, gnb netip.Addr, entry uint32) (bool, error)
	OwnerOf(entry uint32) (session uint64)
	Out(entry uint32) uint64
	LeadsTo(out uint64) (gnb netip.Addr, teid uint32, ok bool)
	// EndMarkers calls the function with where each End Marker goes that an SMF asked
	// the data path for, until the context ends.
	EndMarkers(ctx context.Context, f func(out uint64)) error

	// SetSlice sets the rates of a slice, in kbit/s.
	SetSlice(slice uint32, up, down uint64) error
	// SetSliceSID says whose sessions receive at a slice's SID: from other UPFs, or vpn:
	// from the data network.
	SetSliceSID(sid netip.Prefix, slice uint32, vpn bool)
	SliceCounters(slice uint32) (up, down counter.Counter, err error)

	// InjectKept sends a frame on as if it came in on an interface. The frame was
	// handed up to be kept, by a rule that may still keep what comes.
	InjectKept(frame []byte, ifindex int) error
	// SessionOf returns the session that a TEID of ours leads to; 0: none. InjectGTPU sends
	// a G-PDU or End Marker by its rules, as if it had come with that TOS and TTL.
	SessionOf(teid uint32) (session uint64)
	InjectGTPU(message []byte, tos, ttl uint8) error
	// IsSilent says whether the daemon answers Echo Requests that come by an interface.
	IsSilent(ifindex int) bool
	// InjectFor gives a frame from a link to one Ethernet session. kept says that
	// the frame was handed up to be kept.
	InjectFor(session uint64, frame []byte, ifindex int, kept bool) error
	// A rule that buffered and is put to forward goes on handing up what comes as long as
	// a packet that it handed up is not done with (Taken), so that none is overtaken. Open
	// has it forward where none is, or by force, and says whether it does. Shut has it
	// drop what comes until it is open.
	Open(id uint64, rule uint16, force bool) bool
	Shut(id uint64, rule uint16)
	Taken(entry uint32)
}
