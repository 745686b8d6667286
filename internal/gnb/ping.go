package gnb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"github.com/safchain/ethtool"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/probe"
	"github.com/culvert-net/culvert/internal/smf"
)

// Ping is what a UE sends.
type Ping struct {
	To       netip.Addr
	Count    int
	Interval time.Duration
	Size     int           // of the data, in octets
	Wait     time.Duration // for the last answer
	// Answered, if set, is called for each answer.
	Answered func(sequence int, after time.Duration)
}

// PingResult is what became of a UE's packets.
type PingResult struct {
	Session  Session    `json:"session"`
	To       netip.Addr `json:"to"`
	Sent     int        `json:"sent"`
	Received int        `json:"received"`
	// Round trips, in microseconds.
	Min  int64 `json:"min_us"`
	Mean int64 `json:"mean_us"`
	Max  int64 `json:"max_us"`
	Evidence
	// Findings say where packets went missing, if no answer came.
	Findings []string `json:"findings,omitempty"`
}

// Ping sends from a UE through the UPF. After an interrupt it returns what became of the
// packets until then.
func (a *Attachment) Ping(ctx context.Context, s *Session, p Ping) (PingResult, error) {
	r := PingResult{Session: *s, To: p.To}
	source := s.Source(p.To)
	if !source.IsValid() {
		return r, fmt.Errorf("the UE has no address of the family of %s: give one by --ue", p.To)
	}
	before := a.Stats()
	var sum time.Duration
	result, err := probe.Ping{
		From: namespace.Named{Name: s.Namespace}, Source: source, To: p.To, Count: p.Count, Interval: p.Interval, Size: p.Size, Wait: p.Wait,
		Answered: func(sequence int, after time.Duration) {
			us := after.Microseconds()
			if sum += after; r.Min == 0 || us < r.Min {
				r.Min = us
			}
			r.Max = max(r.Max, us)
			if p.Answered != nil {
				p.Answered(sequence, after)
			}
		},
	}.Run(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		return r, err
	}
	r.Sent, r.Received = result.Sent, result.Received
	if r.Received > 0 {
		r.Mean = (sum / time.Duration(r.Received)).Microseconds()
	}
	r.Evidence = a.evidence(s, before)
	r.Errors = result.Errors
	if r.Received == 0 {
		r.Usage, r.Echo, r.Veth = a.usage(s), a.echo(s), a.veth()
		r.Findings = r.find(s)
	}
	return r, nil
}

// Evidence is what is known of packets of a UE, besides what came back to it.
type Evidence struct {
	// Errors reached the UE, and N3Errors the gNB.
	Errors   []probe.ICMPError `json:"errors,omitempty"`
	N3Errors []probe.ICMPError `json:"n3_errors,omitempty"`
	// GTPU counts the tunnel's packets, and Unknown G-PDUs that came for TEIDs of no session.
	GTPU    gtpulink.LinkStats `json:"gtpu"`
	Unknown uint64             `json:"unknown_teid"`
	// Echo says that the UPF answers an Echo Request; nil: it was not asked.
	Echo *bool `json:"echo,omitempty"`
	// Veth is the gNB's interface, if it is a veth that loses what XDP sends to it.
	Veth string `json:"veth,omitempty"`
	// Usage is what the UPF counted; nil: it was not asked, or did not say.
	Usage *Usage `json:"usage,omitempty"`
}

// Usage is what the UPF counted of a session, in octets.
type Usage struct {
	Uplink   uint64 `json:"uplink"`
	Downlink uint64 `json:"downlink"`
}

// evidence is what the gNB has counted since before.
func (a *Attachment) evidence(s *Session, before gtpulink.Stats) Evidence {
	now := a.Stats()
	l, b := now.Links[s.Namespace], before.Links[s.Namespace]
	l.Sent -= b.Sent
	l.Received -= b.Received
	l.Refused -= b.Refused
	l.EndMarkers -= b.EndMarkers
	l.Containers -= b.Containers
	l.Late -= b.Late
	return Evidence{GTPU: l, Unknown: now.UnknownTEID - before.UnknownTEID, N3Errors: now.Errors[min(len(before.Errors), len(now.Errors)):]}
}

// echoWait is how long a GTP-U Echo Response may take.
const echoWait = time.Second

// echo says whether the UPF answers one of three Echo Requests.
func (a *Attachment) echo(s *Session) *bool {
	var r gtpulink.Response
	err := a.endpoint.Echo(gtpulink.Request{Device: s.Namespace, Count: 3, Wait: echoWait}, &r)
	return new(err == nil && r.Received > 0)
}

// usage asks the UPF; nil: it did not say.
func (a *Attachment) usage(s *Session) *Usage {
	if a.group == nil || !a.o.Usage {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	result, err := a.group.Query(ctx, smf.Pace{})
	if err != nil {
		return nil
	}
	for _, u := range result.Usage {
		if a.group.Info(u.Session).CPSEID != s.SEID {
			continue
		}
		for _, r := range u.Reports {
			if r.Uplink != nil && r.Downlink != nil {
				return &Usage{*r.Uplink, *r.Downlink}
			}
		}
	}
	return nil
}

// veth is the gNB's interface, if it is a veth without GRO: such a one has no place for
// frames that an XDP program at its other end redirects to it.
func (a *Attachment) veth() (name string) {
	var links []struct {
		Name string `json:"ifname"`
		Info struct {
			Kind string `json:"info_kind"`
		} `json:"linkinfo"`
	}
	_ = namespaceOf(a.o.Namespace).Do(func() error { // what cannot be seen is not said
		out, err := namespace.Output(exec.Command("ip", "-j", "-d", "address", "show", "to", a.o.N3.String()))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 || links[0].Info.Kind != "veth" {
			return err
		}
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		if features, err := e.Features(links[0].Name); err == nil && !features["rx-gro"] {
			name = links[0].Name
		}
		return nil
	})
	return name
}
