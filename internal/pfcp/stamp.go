package pfcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/culvert-net/culvert/internal/logevent"
)

// saveStamp saves our Recovery Time Stamp, first with the sessions.
func (s *Server) saveStamp() bool {
	saved := s.saveState(serverKey, &serverState{s.recovery.Load()})
	if saved {
		s.writeStampFile(true)
	}
	return saved
}

// stampContent is what StampFile has. Another boot of the machine lacks the sessions.
func stampContent(stamp uint32) string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return fmt.Sprintf("%d %s\n", stamp, strings.TrimSpace(string(boot)))
}

// readStampFile returns the Recovery Time Stamp of an earlier process; 0: there is
// none of this boot.
func (s *Server) readStampFile() (stamp uint32) {
	b, err := os.ReadFile(s.cfg.StampFile)
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(b), &stamp); err != nil || string(b) != stampContent(stamp) {
		return 0
	}
	return stamp
}

// writeStampFile has StampFile hold the Recovery Time Stamp if the sessions have it
// too, else nothing: the file never has one that is older than theirs.
func (s *Server) writeStampFile(saved bool) {
	path, stamp := s.cfg.StampFile, s.recovery.Load()
	if path == "" || saved && s.readStampFile() == stamp {
		return
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil && saved {
		next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
		if err = os.WriteFile(next, []byte(stampContent(stamp)), 0o600); err == nil {
			err = os.Rename(next, path)
		}
	}
	if err != nil {
		s.log.Warn("the next start answers heartbeats only when all sessions are there", "event", logevent.PFCPStampUnsaved, "error", err)
	}
}
