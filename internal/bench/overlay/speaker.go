package overlay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/lab"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// speakerCommand is the word after `culvert bench` that starts a speaker.
const speakerCommand = "speaker"

// order is a line of the speaker's standard input.
type order struct {
	Withdraw bool                `json:"withdraw,omitempty"`
	Path     srpolicy.Advertised `json:"path"`
}

// SpeakerCommand is a BGP speaker of SAFI 73 that does what its standard input says,
// and says so line by line: a process, because it has to be in a network namespace.
func SpeakerCommand() *cobra.Command {
	var local, peer netip.Addr
	var asn uint32
	c := &cobra.Command{
		Use: speakerCommand, Short: "Tell a peer the candidate paths of standard input", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return speak(c.Context(), bgp.Config{
				ASN: asn, RouterID: speakerID, Log: slog.New(slog.DiscardHandler),
				Peers: []bgp.Peer{{Address: peer, ASN: asn, Local: local, Families: []bgp.Family{bgp.SRPolicy}}},
			}, c.InOrStdin(), c.OutOrStdout())
		},
	}
	c.Flags().TextVar(&local, "local", local, "`address` to connect from")
	c.Flags().TextVar(&peer, "peer", peer, "`address` of the peer")
	c.Flags().Uint32Var(&asn, "asn", 65000, "`AS number` of both")
	return c
}

// speakerID is its router ID.
var speakerID = netip.MustParseAddr("192.0.2.99")

func speak(ctx context.Context, config bgp.Config, in io.Reader, out io.Writer) error {
	speaker, err := bgp.Start(ctx, config, nil)
	if err != nil {
		return err
	}
	defer speaker.Stop()
	orders := json.NewDecoder(in)
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if o.Withdraw {
			err = speaker.Withdraw(o.Path)
		} else {
			err = speaker.Advertise(o.Path, nil)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, "done"); err != nil {
			return err
		}
	}
}

// speaker is one that runs.
type speaker struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	done   *bufio.Scanner // a line for each order
}

// startSpeaker runs it in its node.
func startSpeaker(network *lab.Network, local, peer netip.Addr) (_ *speaker, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &speaker{cmd: exec.Command(self, "bench", speakerCommand, "--local", local.String(), "--peer", peer.String())}
	s.cmd.Stderr = os.Stderr
	if s.orders, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.done = bufio.NewScanner(out)
	if err := network.Do(speakerNode, s.cmd.Start); err != nil {
		return nil, fmt.Errorf("start a BGP speaker: %w", err)
	}
	return s, nil
}

// do waits until the order is with GoBGP, which sends it.
func (s *speaker) do(o order) error {
	if err := json.NewEncoder(s.orders).Encode(o); err != nil {
		return fmt.Errorf("the BGP speaker: %w", err)
	}
	if !s.done.Scan() {
		return errors.Join(errors.New("the BGP speaker ended"), s.done.Err())
	}
	return nil
}

// stop ends it: it does so when its standard input ends.
func (s *speaker) stop() error {
	err := s.orders.Close()
	kill := time.AfterFunc(stopTime, func() { _ = s.cmd.Process.Kill() })
	ended := s.cmd.Wait()
	if !kill.Stop() {
		ended = fmt.Errorf("the BGP speaker did not end in %s: %w", stopTime, ended)
	}
	return errors.Join(err, ended)
}

const stopTime = 10 * time.Second
