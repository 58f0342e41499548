package kafka

const (
	minChunk = 4 << 10
	maxChunk = 64 << 10
	// chunkClasses are the sizes 4, 8, 16, 32 and 64 KiB. Larger chunks hold one record each and are not kept.
	chunkClasses = 5
)

// chunks hands out the memory that records wait in and keeps account of it. All of it belongs to the lock of the Publisher.
type chunks struct {
	limit int64 // of used + free
	used  int64 // capacity handed out
	kept  int64 // capacity on the free lists
	free  [chunkClasses][][]byte
}

// get gives an empty chunk with room for at least n bytes. size is the wish: at most maxChunk unless n is more.
func (c *chunks) get(n, size int) []byte {
	if n > maxChunk {
		c.used += int64(n)
		return make([]byte, 0, n)
	}
	class, room := classOf(max(n, min(size, maxChunk)))
	c.used += int64(room)
	if list := c.free[class]; len(list) > 0 {
		b := list[len(list)-1]
		c.free[class] = list[:len(list)-1]
		c.kept -= int64(room)
		return b
	}
	for c.kept > 0 && c.used+c.kept > c.limit {
		c.dropOne()
	}
	return make([]byte, 0, room)
}

// put takes a chunk back. Nothing may point into it any more.
func (c *chunks) put(b []byte) {
	c.used -= int64(cap(b))
	if cap(b) > maxChunk || c.used+c.kept+int64(cap(b)) > c.limit {
		return
	}
	class, _ := classOf(cap(b))
	c.free[class] = append(c.free[class], b[:0])
	c.kept += int64(cap(b))
}

// dropOne leaves one kept chunk to the garbage collector, the largest first.
func (c *chunks) dropOne() {
	for class := chunkClasses - 1; class >= 0; class-- {
		if list := c.free[class]; len(list) > 0 {
			c.kept -= int64(cap(list[len(list)-1]))
			list[len(list)-1] = nil
			c.free[class] = list[:len(list)-1]
			return
		}
	}
}

func classOf(n int) (class, size int) {
	size = minChunk
	for size < n {
		size <<= 1
		class++
	}
	return class, size
}
