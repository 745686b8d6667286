// Package backup is the file of a backup: the state file and the sessions' journal as
// they were at one moment.
//
// The file is a tar archive: culvert-backup.json, which says what it is; state.db;
// the files of the journal below sessions/; and sha256, the checksum of everything
// before it. Write makes one from a transaction of the state file and marks of the
// journal. Open checks one as a whole before anybody uses a part of it. Restore writes
// it to where a daemon that does not run keeps its state.
//
// The resources of the API come back. What others say, such as BGP and Kubernetes, and
// the pods stay as they are, because they belong to now. Sessions stay as they are too,
// and come back only if the state directory has no journal: see Restore.
package backup
