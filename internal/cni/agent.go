package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
)

// Codes of CNI 1.1 that the library has no name for: what STATUS answers.
const (
	errNotAvailable        uint = 50
	errLimitedConnectivity uint = 51
)

// Times between tries, and how long one may take.
const (
	firstPause = 10 * time.Millisecond
	longPause  = 500 * time.Millisecond
	oneTry     = 10 * time.Second
)

// agentClient asks the daemon on this node.
type agentClient struct {
	culvertv1connect.PodsClient
	socket string
}

func newAgent(socket string) *agentClient {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	return &agentClient{culvertv1connect.NewPodsClient(&http.Client{Transport: transport}, "http://culvert"), socket}
}

// ask sends the agent a request, and repeats it while the agent restarts, for as long
// as patience lasts. The agent gives each repetition the same answer.
func ask[Q, A any](a *agentClient, patience time.Duration, call func(context.Context, *Q) (*A, error), request *Q) (*A, error) {
	until := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		ctx, cancel := context.WithTimeout(context.Background(), oneTry)
		answer, err := call(ctx, request)
		cancel()
		if err == nil || !transient(err) || time.Now().Add(pause).After(until) {
			return answer, a.explain(err)
		}
		time.Sleep(pause)
	}
}

// transient reports whether a second request may soon succeed. An agent that is
// slow finishes the first request, and then answers the repeated one at once.
func transient(err error) bool {
	return connect.CodeOf(err) == connect.CodeUnavailable || late(err) || brokenOff(err)
}

// late says that the agent did not answer in time.
func late(err error) bool { return connect.CodeOf(err) == connect.CodeDeadlineExceeded }

// brokenOff says that the agent ended while it was asked.
func brokenOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// absent says that nobody listens.
func absent(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// explain gives an error its CNI code.
func (a *agentClient) explain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		text = ce.Message()
	}
	code := types.ErrInternal
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeResourceExhausted, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		code = types.ErrTryAgainLater
	case connect.CodeInvalidArgument:
		code = types.ErrInvalidNetworkConfig
	}
	if late(err) {
		text = fmt.Sprintf("the agent at %s takes longer than %s to answer: %s", a.socket, oneTry, text)
	}
	if absent(err) || brokenOff(err) {
		text = fmt.Sprintf("no agent at %s: %s (does the node's culvert pod run?)", a.socket, text)
		code = types.ErrTryAgainLater
	}
	return &agentError{types.NewError(code, text, ""), err}
}

// agentError is CNI's error, with what it was made of.
type agentError struct {
	cni   *types.Error
	cause error
}

func (e *agentError) Error() string   { return e.cni.Error() }
func (e *agentError) Unwrap() []error { return []error{e.cni, e.cause} }
