//go:build !linux || race

package quietconn

const quiets = false
