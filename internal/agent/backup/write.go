package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"time"

	"go.etcd.io/bbolt"
)

// Format is of the files that Write makes, and the only one that Open reads.
const Format = 1

// Info says what a backup is.
type Info struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the culvert that made it
	Node    string    `json:"node"`
	Time    time.Time `json:"time"`
	// Journal is the header of the sessions' journal; empty: it has no sessions.
	Journal string `json:"journal,omitempty"`
}

// Part is a file of the sessions' journal.
type Part struct {
	Name string
	Size int64
	io.Reader
}

const (
	infoName    = "culvert-backup.json"
	stateName   = "state.db"
	journalName = "sessions/"
	sumName     = "sha256"
)

// Write writes a backup.
func Write(w io.Writer, info Info, tx *bbolt.Tx, journal []Part) error {
	info.Format = Format
	text, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	sum := sha256.New()
	out := tar.NewWriter(io.MultiWriter(w, sum))
	put := func(name string, size int64, write func(io.Writer) error) error {
		return errors.Join(out.WriteHeader(headerOf(name, size)), write(out), out.Flush())
	}
	if err := put(infoName, int64(len(text)), writing(bytes.NewReader(text))); err != nil {
		return err
	}
	err = put(stateName, tx.Size(), func(w io.Writer) error { _, err := tx.WriteTo(w); return err })
	for _, p := range journal {
		if err != nil {
			return err
		}
		err = put(journalName+p.Name, p.Size, writing(p))
	}
	if err != nil {
		return err
	}
	end, err := ending(sum.Sum(nil))
	if err == nil {
		_, err = w.Write(end)
	}
	return err
}

func writing(r io.Reader) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.Copy(w, r); return err }
}

func headerOf(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, Format: tar.FormatPAX}
}

// ending is the end of a file: its checksum, and the end of the archive.
func ending(sum []byte) ([]byte, error) {
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	text := hex.EncodeToString(sum)
	err := out.WriteHeader(headerOf(sumName, int64(len(text))))
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	err = errors.Join(err, out.Close())
	return b.Bytes(), err
}
