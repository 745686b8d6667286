package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/srv6"
)

// putSessions writes a network's sessions into the tables.
func (r *rig) putSessions() error {
	return errors.Join(
		each(r.network.Slices, func(s model.Slice) error { return r.d.SetSlice(s.ID, s.Up, s.Down) }),
		each(linksOf(r.network.Sessions), r.d.Links.Put),
		each(localTEIDs(r.network.Sessions), r.d.Sessions.TakeTEID),
		each(r.network.Sessions, func(s model.Session) error { return r.d.Sessions.Put(sessionOf(s)) }))
}

// changeSession puts a session in place of what it was. What rules counted that
// stay goes on.
func (r *rig) changeSession(s model.Session) error {
	at := slices.IndexFunc(r.network.Sessions, func(had model.Session) bool { return had.ID == s.ID })
	had := r.network.Sessions[at]
	was, err := r.d.Sessions.Usage(s.ID)
	if err != nil {
		return err
	}
	before, after := localTEIDs([]model.Session{had}), localTEIDs([]model.Session{s})
	for _, teid := range after {
		if !slices.Contains(before, teid) {
			err = errors.Join(err, r.d.Sessions.TakeTEID(teid))
		}
	}
	if err := errors.Join(err, r.d.Sessions.Put(sessionOf(s))); err != nil {
		return err
	}
	for _, teid := range before {
		if !slices.Contains(after, teid) {
			r.d.Sessions.FreeTEID(teid)
		}
	}
	is, err := r.d.Sessions.Usage(s.ID)
	if err != nil {
		return err
	}
	has := func(list []model.Rule, id uint16) bool {
		return slices.ContainsFunc(list, func(rule model.Rule) bool { return rule.ID == id })
	}
	for _, u := range was { // rules that the change before took out among them
		if has(had.Rules, u.Rule) && has(s.Rules, u.Rule) && !slices.Contains(is, u) {
			return fmt.Errorf("rule %d had counted %v: %v", u.Rule, u.Volume, is)
		}
	}
	r.network.Sessions = slices.Clone(r.network.Sessions)
	r.network.Sessions[at] = s
	r.keys = r.counterKeys()
	return nil
}

// deleteSession removes a session and waits for what its rules forwarded.
func deleteSession(d *DataPlane, id uint64) (usage []RuleUsage, err error) {
	done := make(chan struct{})
	if refused := d.Sessions.Remove(id, func(u []RuleUsage, e error) {
		usage, err = u, e
		close(done)
	}); refused != nil {
		return nil, refused
	}
	<-done
	return usage, err
}

// deleteSessions takes them out again.
func (r *rig) deleteSessions() error {
	err := each(r.network.Sessions, func(s model.Session) error {
		_, err := deleteSession(r.d, s.ID)
		return err
	})
	for _, teid := range localTEIDs(r.network.Sessions) {
		r.d.Sessions.FreeTEID(teid)
	}
	err = errors.Join(err, r.forgetStations(), each(linksOf(r.network.Sessions), r.d.Links.Delete))
	return errors.Join(err, each(r.network.Slices, func(s model.Slice) error { return r.d.SetSlice(s.ID, 0, 0) }))
}

// linksOf are those that sessions' rules name, each once.
func linksOf(sessions []model.Session) []Link {
	var list []Link
	for _, s := range sessions {
		for _, r := range s.Rules {
			for _, l := range []Link{Link(r.Link), Link(r.Forward.Link)} {
				if l != (Link{}) && !slices.Contains(list, l) {
					list = append(list, l)
				}
			}
		}
	}
	return list
}

// forgetStations lets no session of the same ID have the hosts of this one's,
// whose IDs are those of another network's again.
func (r *rig) forgetStations() error {
	var keys []abi.StationKey
	var k abi.StationKey
	var s abi.Station
	table := r.d.maps[abi.MapStation]
	entries := table.Iterate()
	for entries.Next(&k, &s) {
		keys = append(keys, k)
	}
	return errors.Join(entries.Err(), each(keys, func(k abi.StationKey) error { return table.Delete(k) }))
}

// localTEIDs are those that sessions receive at, each once.
func localTEIDs(sessions []model.Session) []uint32 {
	var list []uint32
	for _, s := range sessions {
		for _, r := range s.Rules {
			if r.TEID != 0 && !slices.Contains(list, r.TEID) {
				list = append(list, r.TEID)
			}
		}
	}
	return list
}

// sessionOf is what a session of the model is to the data path.
func sessionOf(s model.Session) Session {
	out := Session{ID: s.ID}
	for _, m := range s.Meters {
		out.Meters = append(out.Meters, Meter(m))
	}
	for _, r := range s.Rules {
		out.Rules = append(out.Rules, ruleOf(r))
	}
	for _, q := range s.Quotas {
		out.Quotas = append(out.Quotas, session.Quota(q))
	}
	return out
}

var (
	ruleDirections = map[model.Direction]Direction{model.Uplink: Uplink, model.Downlink: Downlink}
	ruleActions    = map[model.Action]Action{model.ActionForward: ActionForward, model.ActionDrop: ActionDrop,
		model.ActionGate: ActionGate, model.ActionBuffer: ActionBuffer, model.ActionFull: ActionFull}
	ruleContainers = map[srv6.ContainerType]Container{srv6.ContainerNone: ContainerNone,
		srv6.ContainerDownlink: ContainerDownlink, srv6.ContainerUplink: ContainerUplink}
	forwardingKinds = map[model.ForwardingKind]ForwardingKind{model.ForwardTable: ForwardTable, model.ForwardGTPU: ForwardGTPU,
		model.ForwardSRv6: ForwardSRv6, model.ForwardPolicy: ForwardPolicy, model.ForwardLink: ForwardLink, model.ForwardVPN: session.ForwardVPN}
	uesToUEs   = map[model.BetweenUEs]session.UEToUE{model.BetweenUEsRoute: session.UEToUERoute, model.BetweenUEsN6: session.UEToUEN6}
	eventKinds = map[session.EventKind]model.EventKind{EventNotify: model.EventNotify, EventStop: model.EventStop}
)

func flowOf(f model.Forwarding) class.SessionFlow {
	if f.Kind != model.ForwardPolicy {
		return class.SessionFlow{}
	}
	out := class.SessionFlow{Slice: f.Flow.Slice, Policy: f.Policy, QFI: class.NoQFI}
	if f.Flow.QFI != nil {
		out.QFI = *f.Flow.QFI
	}
	return out
}

func ruleOf(r model.Rule) Rule {
	f := r.Forward
	out := Rule{ID: r.ID, Precedence: r.Precedence, Direction: ruleDirections[r.Direction], TEID: r.TEID,
		Sources: r.Sources, Destinations: r.Destinations, Action: ruleActions[r.Action], Duplicate: r.Duplicate,
		QFI: r.QFI, RQI: r.RQI, Container: ruleContainers[r.Container], Rate: r.Rate, Meters: r.Meters,
		RuleLimits: RuleLimits{NotifyAt: r.NotifyAt, StopAt: r.StopAt, Shares: r.Shares, RefusedNotifyAt: r.RefusedNotifyAt},
		Ethernet:   r.Ethernet, Link: Link(r.Link), AtSID: session.AtSID(r.AtSID),
		Forward: Forwarding{Kind: forwardingKinds[f.Kind], Table: f.Table, Internal: f.Internal, Remote: f.Remote, Source: f.Source,
			TEID: f.TEID, Control: f.Control, ArgsOffset: f.ArgsOffset, Flow: flowOf(f), Link: Link(f.Link), VPN: f.VPN, ToS: f.ToS, ToSMask: f.ToSMask, Slice: f.Slice}}
	group := session.GroupOf(uesToUEs[r.Group.UEToUE], r.Group.Slice, r.Group.NetworkInstance)
	if r.Group == (model.Group{}) {
		group = 0
	}
	if r.TEID == 0 {
		out.Group = group
	} else if f.Kind == model.ForwardTable || f.Kind == model.ForwardVPN {
		out.Forward.Group = group
	}
	for _, q := range r.QFIs {
		out.QFIs |= 1 << q
	}
	for _, f := range r.Filters {
		out.Filters = append(out.Filters, filterOf(f))
	}
	return out
}

func filterOf(f model.Filter) Filter {
	out := Filter{Remote: f.Remote, Local: f.Local, AnyProtocol: f.Protocol == nil, ToS: f.ToS, ToSMask: f.ToSMask,
		RemotePorts: [2]uint16{0, 65535}, LocalPorts: [2]uint16{0, 65535}}
	if f.Protocol != nil {
		out.Protocol = *f.Protocol
	}
	if f.RemotePorts != nil {
		out.RemotePorts = *f.RemotePorts
	}
	if f.LocalPorts != nil {
		out.LocalPorts = *f.LocalPorts
	}
	if f.FlowLabel != nil {
		out.HasFlowLabel, out.FlowLabel = true, *f.FlowLabel
	}
	if f.SPI != nil {
		out.HasSPI, out.SPI = true, *f.SPI
	}
	if e := f.Frame; e != nil {
		out.Frame = &FrameFilter{CTag: e.CTag, STag: e.STag, IP: e.IP}
		if e.Source != nil {
			out.Frame.Source = *e.Source
		}
		if e.Destination != nil {
			out.Frame.Destination = *e.Destination
		}
		if e.SourceTo != nil {
			out.Frame.SourceTo = *e.SourceTo
		}
		if e.DestinationTo != nil {
			out.Frame.DestinationTo = *e.DestinationTo
		}
		if e.EtherType != nil {
			out.Frame.EtherType = *e.EtherType
		}
	}
	return out
}

// sessionCounters are the volumes of rules and slices.
func (r *rig) sessionCounters() []counterKey {
	var keys []counterKey
	for _, s := range r.network.Sessions {
		k := counterKey{read: func() ([]counter.Counter, error) { return r.volumes(s) }}
		for _, rule := range s.Rules {
			k.names = append(k.names, model.RuleName(s.ID, rule.ID), model.RefusedName(s.ID, rule.ID))
		}
		keys = append(keys, k)
	}
	for _, s := range r.network.Slices {
		keys = append(keys, counterKey{[]string{model.SliceName(s.ID, model.Uplink), model.SliceName(s.ID, model.Downlink)},
			func() ([]counter.Counter, error) {
				up, down, err := r.d.SliceCounters(s.ID)
				return []counter.Counter{up, down}, err
			}})
	}
	return keys
}

// volumes are those of a session's rules, in the model's order.
func (r *rig) volumes(s model.Session) ([]counter.Counter, error) {
	usage, err := r.d.Sessions.Usage(s.ID)
	if err != nil {
		return nil, err
	}
	var list []counter.Counter
	for _, rule := range s.Rules {
		i := slices.IndexFunc(usage, func(u RuleUsage) bool { return u.Rule == rule.ID })
		if i < 0 {
			return nil, errors.New("a rule has no volume")
		}
		list = append(list, usage[i].Volume, usage[i].Refused)
	}
	return list, nil
}

// takeEvents waits for a number of events, and returns all there are.
func (r *rig) takeEvents(want int) []model.Event {
	return waitFor(&r.mu, &r.events, want)
}

// putSID puts a SID, which may be one behind which UEs are: End.DT46 as whoever
// has sessions puts it, the others, which the data path knows as well, by the
// flag alone.
func (r *rig) putSID(s srv6.LocalSID) error {
	slice, has := r.network.SliceOf(s.SID)
	if !has {
		return r.d.SIDs.Put(s)
	}
	if r.asSessionSID(s) {
		err := r.d.SIDs.PutForSessions(s.SID)
		r.d.SIDs.SetSlice(s.SID, uint16(slice), false)
		return err
	}
	if err := r.d.SIDs.Put(s); err != nil {
		return err
	}
	index := r.d.SIDs.IndexOf(s.SID.Masked())
	e := r.d.SIDs.Entries.Get(index)
	e.Flags, e.Slice = e.Flags|uint8(abi.SidFlagsSID_SESSIONS), uint16(slice)
	for i, w := range table.ToWords(e) {
		r.d.SIDs.Entries.Store(index, i, w)
	}
	return nil
}

func (r *rig) deleteSID(s srv6.LocalSID) error {
	if r.asSessionSID(s) {
		return r.d.SIDs.DeleteForSessions(s.SID)
	}
	return r.d.SIDs.Delete(s.SID)
}

// asSessionSID says whether PutSessionSID makes just this.
func (r *rig) asSessionSID(s srv6.LocalSID) bool {
	_, has := r.network.SliceOf(s.SID)
	return has && s.Behavior == srv6.EndDT46 && !s.AllowUpperLayer
}
