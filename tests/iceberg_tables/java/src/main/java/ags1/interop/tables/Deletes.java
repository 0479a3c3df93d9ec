package ags1.interop.tables;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PositionDeleteAppend;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.GenericFileWriterFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.EqualityDeleteWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteWriter;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.io.OutputFileFactory;

/** Delete files that Spark does not write, for unpartitioned tables, encrypted as the table says. */
public final class Deletes {
  private Deletes() {}

  /** Delete the rows that have one of these values in a column of the type long. */
  public static void byValue(Table table, String column, List<Number> values, String format) throws IOException {
    FileFormat fileFormat = FileFormat.fromString(format);
    Schema rows = table.schema().select(column);
    GenericFileWriterFactory factory =
        new GenericFileWriterFactory.Builder(table)
            .deleteFileFormat(fileFormat)
            .equalityFieldIds(new int[] {table.schema().findField(column).fieldId()})
            .equalityDeleteRowSchema(rows)
            .build();
    EqualityDeleteWriter<Record> writer =
        factory.newEqualityDeleteWriter(output(table, fileFormat), PartitionSpec.unpartitioned(), null);
    Record row = GenericRecord.create(rows);
    try (writer) {
      for (Number value : values) {
        writer.write(row.copy(Map.of(column, value.longValue())));
      }
    }
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit();
  }

  /** Delete the rows at these positions of a data file. */
  public static void byPosition(Table table, String dataFile, List<Number> positions, String format)
      throws IOException {
    FileFormat fileFormat = FileFormat.fromString(format);
    GenericFileWriterFactory factory =
        new GenericFileWriterFactory.Builder(table).deleteFileFormat(fileFormat).build();
    PositionDeleteWriter<Record> writer =
        factory.newPositionDeleteWriter(output(table, fileFormat), PartitionSpec.unpartitioned(), null);
    PositionDelete<Record> delete = PositionDelete.create();
    try (writer) {
      for (Number position : positions) {
        writer.write(delete.set(dataFile, position.longValue()));
      }
    }
    DeleteFile written = writer.toDeleteFile();
    new PositionDeleteAppend(table).add(written).commit();
  }

  private static EncryptedOutputFile output(Table table, FileFormat format) {
    return OutputFileFactory.builderFor(table, 1, 1).format(format).suffix("deletes").build().newOutputFile();
  }
}
