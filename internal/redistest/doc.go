// Package redistest gives tests a real Redis: servers of their own that can be
// frozen, killed and restarted, one server shared by a package's tests, a
// Cluster (with replicas, and slots that move) and a Sentinel; and a way to wait for
// what becomes of them, [Eventually].
//
// Servers listen on free loopback ports, keep nothing on disk, and are ended by
// process id when the test that started them ends. On Linux they also end with
// the test binary when that is killed.
//
// A test that needs a server and finds none fails; it is never skipped, so that
// a green run always means that everything ran.
package redistest
