package event

// Fields of the optional metadata of a TABLE_MAP (MySQL source: Table_map_event::Optional_metadata_field_type).
const (
	metaSignedness         = 1
	metaDefaultCharset     = 2
	metaColumnCharset      = 3
	metaColumnName         = 4
	metaSetMembers         = 5
	metaEnumMembers        = 6
	metaGeometryType       = 7
	metaSimplePrimaryKey   = 8
	metaPrimaryKeyPrefix   = 9
	metaEnumDefaultCharset = 10
	metaEnumColumnCharset  = 11
	metaVisibility         = 12
	metaVectorDimension    = 13
)

// readOptional takes the metadata fields up to the end. Fields that are unknown or that nobody needs are skipped.
func (t *Table) readOptional(c *cursor) error {
	t.HasSigns = true
	for i := range t.Columns {
		if t.Columns[i].Type.IsNumeric() {
			t.HasSigns = false
		}
	}
	for len(c.b) > 0 {
		field := c.u8()
		value := cursor{b: c.bytes(c.lenenc())}
		if c.bad {
			return malformed(TypeTableMap, "metadata field %d is cut off", field)
		}
		ok := true
		switch field {
		case metaSignedness:
			ok = t.readSigns(value.b)
		case metaDefaultCharset:
			ok = t.readDefaultCharset(&value, ColumnType.IsCharacter)
		case metaColumnCharset:
			ok = t.readColumnCharsets(&value, ColumnType.IsCharacter)
		case metaEnumDefaultCharset:
			ok = t.readDefaultCharset(&value, isEnumOrSet)
		case metaEnumColumnCharset:
			ok = t.readColumnCharsets(&value, isEnumOrSet)
		case metaColumnName:
			ok = t.readNames(&value)
		case metaSetMembers:
			ok = t.readMembers(&value, ColumnSet)
		case metaEnumMembers:
			ok = t.readMembers(&value, ColumnEnum)
		case metaSimplePrimaryKey:
			ok = t.readPrimaryKey(&value, false)
		case metaPrimaryKeyPrefix:
			ok = t.readPrimaryKey(&value, true)
		case metaVisibility:
			ok = t.readVisibility(value.b)
		case metaGeometryType, metaVectorDimension:
		}
		if !ok || value.bad {
			return malformed(TypeTableMap, "metadata field %d does not fit the columns", field)
		}
	}
	return nil
}

func isEnumOrSet(t ColumnType) bool { return t == ColumnEnum || t == ColumnSet }

// msbBit gives bit i of a bitmap with the most significant bit first.
func msbBit(bitmap []byte, i int) bool { return bitmap[i>>3]<<(i&7)&0x80 != 0 }

// readSigns: one bit per numeric column, 1 = unsigned. The bit of a YEAR is taken and not kept: its value has no
// sign anyway.
func (t *Table) readSigns(bits []byte) bool {
	n := 0
	for i := range t.Columns {
		col := &t.Columns[i]
		if !col.Type.IsNumeric() {
			continue
		}
		if n>>3 >= len(bits) {
			return false
		}
		col.Unsigned = msbBit(bits, n)
		n++
	}
	t.HasSigns = true
	return true
}

// readDefaultCharset: lenenc collation of all columns of the kind, then pairs of lenenc (index among them, collation).
func (t *Table) readDefaultCharset(c *cursor, kind func(ColumnType) bool) bool {
	byDefault, ok := collation(c)
	if !ok {
		return false
	}
	index, next, pair := uint64(0), uint64(1<<63), uint16(0)
	more := func() bool {
		next = 1 << 63
		if len(c.b) == 0 {
			return true
		}
		next = c.lenenc()
		pair, ok = collation(c)
		return ok
	}
	if !more() {
		return false
	}
	for i := range t.Columns {
		if !kind(t.Columns[i].Type) {
			continue
		}
		t.Columns[i].Collation = byDefault
		if index == next {
			t.Columns[i].Collation = pair
			if !more() {
				return false
			}
		}
		index++
	}
	return len(c.b) == 0 && next == 1<<63 // every pair found its column; they ascend
}

// readColumnCharsets: one lenenc collation per column of the kind.
func (t *Table) readColumnCharsets(c *cursor, kind func(ColumnType) bool) bool {
	for i := range t.Columns {
		if !kind(t.Columns[i].Type) {
			continue
		}
		id, ok := collation(c)
		if !ok {
			return false
		}
		t.Columns[i].Collation = id
	}
	return len(c.b) == 0
}

func collation(c *cursor) (uint16, bool) {
	id := c.lenenc()
	return uint16(id), !c.bad && id > 0 && id <= 0xffff
}

// readNames: lenenc length and name per column.
func (t *Table) readNames(c *cursor) bool {
	for i := range t.Columns {
		t.Columns[i].Name = string(c.bytes(c.lenenc()))
	}
	t.HasNames = !c.bad
	return !c.bad && len(c.b) == 0
}

// readMembers: per column of the type, lenenc count, then as many times lenenc length and member.
func (t *Table) readMembers(c *cursor, kind ColumnType) bool {
	for i := range t.Columns {
		if t.Columns[i].Type != kind {
			continue
		}
		count := c.lenenc()
		if c.bad || count > uint64(len(c.b)) { // a member takes at least the byte of its length
			return false
		}
		members := make([]string, count)
		for m := range members {
			members[m] = string(c.bytes(c.lenenc()))
		}
		t.Columns[i].Members = members
	}
	return !c.bad && len(c.b) == 0
}

// readPrimaryKey: lenenc column indexes, each with a lenenc prefix length where withPrefix.
func (t *Table) readPrimaryKey(c *cursor, withPrefix bool) bool {
	for len(c.b) > 0 {
		i := c.lenenc()
		if withPrefix {
			c.lenenc()
		}
		if c.bad || i >= uint64(len(t.Columns)) {
			return false
		}
		t.Columns[i].PrimaryKey = true
	}
	return true
}

// readVisibility: one bit per column, 1 = visible.
func (t *Table) readVisibility(bits []byte) bool {
	if len(bits) < (len(t.Columns)+7)/8 {
		return false
	}
	for i := range t.Columns {
		t.Columns[i].Visible = msbBit(bits, i)
	}
	return true
}
