package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/culvert-net/culvert/internal/connectivity"
)

// execServer is an API server that runs commands in containers, each in a goroutine.
type execServer struct {
	t       *testing.T
	older   bool // it speaks SPDY only
	refusal int  // status of each attempt; 0: commands are run
	allowed bool // what it says of the operator's rights
	run     func(command []string, stdin io.Reader, stdout, stderr io.Writer) error
}

var agentPod = connectivity.Container{Namespace: "kube-system", Pod: "culvert-x", Name: "culvert"}

func (s *execServer) client() *Client {
	s.t.Helper()
	server := httptest.NewServer(s)
	s.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "k", "cluster": {"server": %q}}],
		"users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	c, err := New(Options{Kubeconfig: file, System: agentPod.Namespace})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *execServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	write := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			s.t.Error(err)
		}
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		write(http.StatusCreated, map[string]any{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": map[string]any{"allowed": s.allowed}})
	case r.URL.Path != "/api/v1/namespaces/kube-system/pods/culvert-x/exec" || r.URL.Query().Get("container") != "culvert":
		s.t.Errorf("%s %s", r.Method, r.URL)
		http.NotFound(w, r)
	case s.refusal != 0:
		write(s.refusal, metav1.Status{Status: metav1.StatusFailure, Message: fmt.Sprintf("pods %q is refused with %d", "culvert-x", s.refusal), Code: int32(s.refusal)})
	case !wsstream.IsWebSocketRequest(r):
		s.spdy(w, r)
	case s.older:
		http.Error(w, "you must specify SPDY", http.StatusBadRequest)
	default:
		s.webSocket(w, r)
	}
}

// Numbers of a WebSocket's channels.
const (
	stdinChannel = iota
	stdoutChannel
	stderrChannel
	errorChannel
)

func (s *execServer) webSocket(w http.ResponseWriter, r *http.Request) {
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{remotecommand.StreamProtocolV5Name: {Binary: true,
		Channels: []wsstream.ChannelType{stdinChannel: wsstream.ReadChannel, stdoutChannel: wsstream.WriteChannel, stderrChannel: wsstream.WriteChannel, errorChannel: wsstream.WriteChannel}}})
	_, streams, err := conn.Open(w, r)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.Close()
	s.serve(r, streams[stdinChannel], streams[stdoutChannel], streams[stderrChannel], streams[errorChannel])
}

func (s *execServer) spdy(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		s.t.Error(err)
		return
	}
	expected := 3
	if r.URL.Query().Get("stdin") == "true" {
		expected++
	}
	made := make(chan httpstream.Stream, expected)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		made <- stream
		return nil
	})
	if conn == nil {
		return // the client has an answer
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for range expected {
		stream := <-made
		streams[stream.Headers().Get(corev1.StreamType)] = stream
	}
	s.serve(r, streams[corev1.StreamTypeStdin], streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStderr], streams[corev1.StreamTypeError])
}

// serve runs a command and says how it ended.
func (s *execServer) serve(r *http.Request, stdin io.Reader, stdout, stderr, end io.WriteCloser) {
	if r.URL.Query().Get("stdin") != "true" {
		stdin = strings.NewReader("")
	}
	status := metav1.Status{Status: metav1.StatusSuccess}
	if err := s.run(r.URL.Query()["command"], stdin, stdout, stderr); err != nil {
		status = metav1.Status{Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: err.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: "1"}}}}
	}
	text, err := json.Marshal(status)
	if err != nil {
		s.t.Error(err)
	}
	_, _ = end.Write(text) // the client is gone
	for _, c := range []io.Closer{stdout, stderr, end} {
		c.Close()
	}
}

// both is for API servers of both sorts.
func both(t *testing.T, f func(t *testing.T, older bool)) {
	for name, older := range map[string]bool{"WebSocket": false, "SPDY": true} {
		t.Run(name, func(t *testing.T) { f(t, older) })
	}
}

func TestExec(t *testing.T) {
	both(t, func(t *testing.T, older bool) {
		s := &execServer{t: t, older: older, run: func(command []string, stdin io.Reader, stdout, stderr io.Writer) error {
			text, err := io.ReadAll(stdin)
			if err != nil {
				return err
			}
			fmt.Fprintf(stdout, "%s: %s", strings.Join(command, " "), text)
			if slices.Contains(command, "fail") {
				fmt.Fprintln(stderr, "culvert: it failed")
				return errors.New("exit code 1")
			}
			return nil
		}}
		c := s.client()
		for _, row := range []struct {
			stdin      io.Reader
			command    string
			want, fail string
		}{
			{nil, "status", "status: ", ""},
			{strings.NewReader("hello"), "probe", "probe: hello", ""},
			{nil, "fail", "fail: ", "culvert: it failed"},
		} {
			out, err := c.Exec(t.Context(), agentPod, row.stdin, row.command)
			if string(out) != row.want || (err == nil) != (row.fail == "") || err != nil && err.Error() != row.fail {
				t.Errorf("%s: %q, %v", row.command, out, err)
			}
		}
	})
}

// A connection to a command carries octets both ways until one side ends it, and then says why.
func TestDial(t *testing.T) {
	both(t, func(t *testing.T, older bool) {
		ended := make(chan struct{}, 10)
		s := &execServer{t: t, older: older, run: func(command []string, stdin io.Reader, stdout, stderr io.Writer) error {
			defer func() { ended <- struct{}{} }()
			switch command[0] {
			case "cat":
				_, err := io.Copy(stdout, stdin)
				return err
			case "bye":
				fmt.Fprint(stdout, "bye")
				return nil
			}
			fmt.Fprintln(stderr, "culvert: no daemon")
			return errors.New("exit code 1")
		}}
		c := s.client()
		within := func(what string) {
			t.Helper()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatalf("%s: the command goes on", what)
			}
		}
		conn := c.Dial(t.Context(), agentPod, "cat")
		for _, text := range []string{"a", strings.Repeat("b", 200_000), "c"} {
			go func() { _, _ = io.WriteString(conn, text) }() // what arrives says it
			got := make([]byte, len(text))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
				t.Fatalf("of %d octets came %d: %v", len(text), len(got), err)
			}
		}
		conn.Close()
		within("closed")
		if all, err := io.ReadAll(c.Dial(t.Context(), agentPod, "bye")); string(all) != "bye" || err != nil {
			t.Errorf("a command that ends: %q, %v", all, err)
		}
		within("bye")
		if all, err := io.ReadAll(c.Dial(t.Context(), agentPod, "relay")); len(all) > 0 || err == nil || err.Error() != "culvert: no daemon" {
			t.Errorf("a command that fails: %q, %v", all, err)
		}
		within("fails")
		ctx, cancel := context.WithCancel(t.Context())
		conn = c.Dial(ctx, agentPod, "cat")
		go func() { _, _ = io.WriteString(conn, "x") }() // what arrives says it
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := io.ReadAll(conn); !errors.Is(err, context.Canceled) {
			t.Errorf("its context has ended: %v", err)
		}
		within("its context has ended")
	})
}

// Whoever may not run commands is told which right is missing. Another refusal is told as it is.
func TestExecRefused(t *testing.T) {
	for name, row := range map[string]struct {
		refusal  int
		allowed  bool
		want     string
		isRights bool
	}{
		"no right":        {http.StatusForbidden, false, "you may not create pods/exec in kube-system", true},
		"another refusal": {http.StatusForbidden, true, "is refused with 403", false},
		"no pod":          {http.StatusNotFound, true, "is refused with 404", false},
	} {
		s := &execServer{t: t, refusal: row.refusal, allowed: row.allowed}
		c := s.client()
		_, exec := c.Exec(t.Context(), agentPod, nil, "status")
		_, dial := io.ReadAll(c.Dial(t.Context(), agentPod, "relay"))
		for _, err := range []error{exec, dial} {
			if err == nil || !strings.Contains(err.Error(), row.want) || errors.Is(err, fs.ErrPermission) != row.isRights {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
