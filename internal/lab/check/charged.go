package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/probe"
)

// recordTime is how long a core may take to write its records of a session that has ended.
const recordTime = 10 * time.Second

// charged sends both ways, ends the session, and wants the core's records of it to say what
// both ends of its packets counted themselves, octet by octet.
func charged(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	x := c.Expect.Charged
	seid, err := daemon.CPSEID(ctx, r.Instance, r.Node(x.UPF), c.Source)
	if err != nil {
		return err
	}
	if x.CDR != "" { // an earlier session's is no record of this one
		if err := os.Remove(daemon.CDRFile(x.CDR)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	since := time.Now()
	want, err := carry(ctx, r, c, o)
	if err != nil {
		return err
	}
	if err := disturb.Do(ctx, r, x.End, o); err != nil {
		return err
	}
	if x.Downlink {
		want.up = 0
	}
	var found report.Outcome
	instance.WaitFor(recordTime, func() bool {
		found = report.Outcome{}
		got, err := reported(ctx, filepath.Join(r.Dir(), x.Node, x.Capture), seid, since)
		if err == nil && len(got) == 0 {
			err = errors.New("no usage of the session")
		}
		if err != nil {
			found.Fail("N4: %v", err)
		}
		for _, urr := range slices.Sorted(maps.Keys(got)) {
			compareVolume(fmt.Sprintf("N4: URR %d", urr), got[urr], want, &found)
		}
		if x.CDR != "" {
			up, down, err := daemon.ChargedVolume(daemon.CDRFile(x.CDR))
			if err != nil {
				found.Fail("%v", err)
			}
			compareVolume("CDR", volume{up, down}, want, &found)
		}
		return len(found.Problems) == 0
	})
	o.Detail, o.Problems = append(o.Detail, found.Detail...), append(o.Problems, found.Problems...)
	return nil
}

func compareVolume(of string, got, want volume, o *report.Outcome) {
	if got != want {
		o.Fail("%s: uplink %d, downlink %d octets: both ends counted %d, %d", of, got.up, got.down, want.up, want.down)
		return
	}
	o.Say("%s: uplink %d, downlink %d octets", of, got.up, got.down)
}

// carry sends a check's streams, and returns what of them the data network counted. It is an
// error unless the gNBs' end counted the same: by all devices, since a UE may move to another.
func carry(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) (volume, error) {
	endpoint := func() (octets volume, err error) {
		response, err := daemon.AskEndpoint(r.Instance, r.Node(c.From), gtpulink.Request{Op: "Stats"})
		for _, l := range response.Stats.Links {
			octets.up += l.SentOctets
			octets.down += l.ReceivedOctets
		}
		return octets, err
	}
	before, err := endpoint()
	if err != nil {
		return volume{}, err
	}
	streams := streams(r, c)
	var results []probe.StreamResult
	err = disturb.During(ctx, r, c, o, func(busy func() bool) (err error) {
		results, err = sendAll(ctx, streams, busy)
		return err
	})
	if err != nil {
		return volume{}, err
	}
	for _, result := range results {
		judgeStream(c, result, o)
	}
	wantAll(o, &c.Expect)
	network := volume{
		up:   uint64(results[0].Received) * uint64(streams[0].IPLength()),
		down: uint64(results[1].Sent) * uint64(streams[1].IPLength()),
	}
	var gnb volume
	instance.WaitFor(AnswerTime, func() bool { // a T-PDU counts after the device has it
		after, e := endpoint()
		gnb, err = volume{up: after.up - before.up, down: after.down - before.down}, e
		return e != nil || gnb == network
	})
	if err == nil && gnb != network {
		err = fmt.Errorf("the gNB counted %d octets up, %d down, the data network %d, %d", gnb.up, gnb.down, network.up, network.down)
	}
	return network, err
}

// reported sums what usage reports of a session say in a capture of N4, by URR, as tshark
// reads them. What was sent again counts once.
func reported(ctx context.Context, file string, seid uint64, since time.Time) (volumes, error) {
	// Answers to modifications and deletions, and reports, are sent to the SMF's SEID.
	filter := fmt.Sprintf("frame.time_epoch >= %.6f && pfcp.seid == %d && pfcp.ur_seqn && (pfcp.msg_type == 53 || pfcp.msg_type == 55 || pfcp.msg_type == 56)",
		float64(since.UnixMicro())/1e6, seid)
	out, err := namespace.Output(exec.CommandContext(ctx, "tshark", "-r", file, "-Y", filter, "-T", "fields",
		"-e", "pfcp.urr_id", "-e", "pfcp.ur_seqn", "-e", "pfcp.volume_measurement.ulvol", "-e", "pfcp.volume_measurement.dlvol"))
	if err != nil {
		return nil, err
	}
	return sumReports(string(out))
}

// sumReports sums lines of tshark: of each frame the URR IDs, UR-SEQNs, and volumes uplink and
// downlink of its usage reports.
func sumReports(lines string) (volumes, error) {
	type numbered struct{ urr, sequence uint64 }
	sum, seen := volumes{}, map[numbered]volume{}
	for line := range strings.Lines(lines) {
		var columns [4][]uint64
		for i, column := range strings.Split(strings.TrimSuffix(line, "\n"), "\t") {
			for text := range strings.SplitSeq(column, ",") {
				n, err := strconv.ParseUint(text, 0, 64)
				if err != nil || i >= len(columns) {
					return nil, fmt.Errorf("tshark says %q", line)
				}
				columns[i] = append(columns[i], n)
			}
		}
		for i, urr := range columns[0] {
			if len(columns[1]) <= i || len(columns[2]) <= i || len(columns[3]) <= i {
				return nil, fmt.Errorf("a usage report without volumes: tshark says %q", line)
			}
			this, is := numbered{urr, columns[1][i]}, volume{columns[2][i], columns[3][i]}
			if was, again := seen[this]; again && was != is {
				return nil, fmt.Errorf("URR %d has two reports %d", urr, this.sequence)
			} else if again {
				continue
			}
			seen[this] = is
			all := sum[uint32(urr)]
			sum[uint32(urr)] = volume{all.up + is.up, all.down + is.down}
		}
	}
	return sum, nil
}
