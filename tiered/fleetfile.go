package tiered

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/regularfile"
)

const (
	// assumedInstances is the assumed size of a fleet if none is set. If the fleet is larger than that
	// and is scaled up in an outage, it lets more than its limits through; a smaller fleet lets less
	// through.
	assumedInstances = 10
	maxInstances     = 1_000_000
)

// How long the file keeps the largest size of a fleet, how often the file is rewritten if nothing has
// changed, and how much of it is read.
const (
	fleetFileKeeps = 7 * 24 * time.Hour
	fleetFileEvery = time.Hour
	fleetFileMost  = 1 << 10 // bytes
)

// fleetFile keeps the largest size of the fleet in recent days. An instance that starts while Redis is
// lost needs it to know how many instances share the limits (law 11). A fleetFile is safe for concurrent
// use.
type fleetFile struct {
	path string
	log  *quietLog

	mu      sync.Mutex // guards the rest, and is held while the file is written
	largest fleetSize
	written time.Time
}

// fleetSize is the content of the file, as JSON.
type fleetSize struct {
	Instances int       `json:"instances"`
	Seen      time.Time `json:"seen"` // when that size was last seen
}

// read returns the size in the file, or 0 if there is no recent one.
func (f *fleetFile) read(now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	size, err := readFleetSize(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0
	case err != nil:
		f.log.Warn("fleet file", "the file with the fleet's size (FleetFile) cannot be read, and is ignored", "file", f.path, "error", err)
		return 0
	case now.Sub(size.Seen) > fleetFileKeeps:
		return 0
	}
	f.largest = size
	return size.Instances
}

func readFleetSize(path string) (size fleetSize, err error) {
	text, err := regularfile.Read(path, fleetFileMost)
	if err == nil && len(text) == 0 {
		err = fs.ErrNotExist // like a file that was created for the limiter to fill
	}
	if err != nil {
		return size, err
	}
	if err := json.Unmarshal(text, &size); err != nil {
		return size, fmt.Errorf("the file does not contain the size of a fleet: %w", err)
	}
	if size.Instances < 1 || size.Instances > maxInstances {
		return size, fmt.Errorf("the number of instances in the file is %d, must be between 1 and 1,000,000", size.Instances)
	}
	return size, nil
}

// heard is called with each size that Redis reports. It writes the file if something has changed.
func (f *fleetFile) heard(size int, now time.Time) {
	if !f.mu.TryLock() {
		return // the file is being written; the next heartbeat is soon
	}
	defer f.mu.Unlock()
	grown := size > f.largest.Instances
	if grown || size == f.largest.Instances || now.Sub(f.largest.Seen) > fleetFileKeeps {
		f.largest = fleetSize{size, now}
	}
	if !grown && now.Sub(f.written) < fleetFileEvery {
		return
	}
	f.written = now
	if err := f.write(now); err != nil {
		f.log.Warn("fleet file", "the file with the fleet's size (FleetFile) cannot be written", "file", f.path, "error", err)
	}
}

// write replaces the file atomically, unless another instance has written a larger size. A file that
// contains anything else, such as one of the program's own files that was named by mistake, is not
// replaced.
func (f *fleetFile) write(now time.Time) error {
	switch there, err := readFleetSize(f.path); {
	case err == nil && there.Instances > f.largest.Instances && now.Sub(there.Seen) <= fleetFileKeeps:
		f.largest = there
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the file is not replaced, because it is not a readable fleet file; remove it, or name another file: %w", err)
	}
	text, err := json.Marshal(f.largest)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err == nil {
		err = os.Rename(file.Name(), f.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
